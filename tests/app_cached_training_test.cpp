// SPDX-License-Identifier: Apache-2.0
// Training with embeddings on parameter servers: times of its messages by hand, what reports add up, what is refused.
#include "sim/app/cached_training.hpp"

#include "sim/app/session.hpp"
#include "tests/app_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kLatency = 0.5;

/// Workers with cards of 10 B/s, and servers with ones of 20 B/s.
ExchangeCards cards(std::size_t workers) {
  ExchangeCards c;
  for (std::size_t w = 0; w < workers; ++w) c.of_worker.push_back(w), c.cards.push_back({10, kLatency});
  c.server = {20, kLatency};
  c.gather = c.reduce = {10, kLatency};
  return c;
}

Scenario scenario(const std::string& options, const std::string& more = "") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const std::string text =
      "model: {model_type: dlrm, architectures: [DLRM], dtype: float32, dense_features: 4, embedding_dim: 8, "
      "bottom_mlp: [16, 8], top_mlp: [16, 1], table_sizes: [300, 50, 2000]}\n"
      "cluster: {nodes: 4, device: v100_16g, nic: {per: node, bandwidth: 1 Gb/s, latency: 50 us}, "
      "host_link: {bandwidth: 12 GB/s, latency: 2 us}}\n" +
      more + "workload: {cached_training: {workers: 4, batch: 16, steps: 10, warm_up: 5, " + options + "}}\n";
  return make_scenario(parse_yaml(text, "test"), "test", Locations{environment});
}

CachedTrainingReport report(const std::string& options) {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  return simulate_cached_training(scenario(options), Wiring{environment}, [] {});
}

std::string refusal(const std::string& options, const std::string& more = "") {
  return user_error([&] {
    const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
    simulate_cached_training(scenario(options, more), Wiring{environment}, [] {});
  });
}

}  // namespace

// Both workers' cards carry 10 B/s. Requests of 20 and 40 B hold the server from 0 to 2 s and from 2 to 6 s and are
// there at 2.5 and 6.5 s. Replies of 50 and 10 B leave from 2.5 to 7.5 s and from 7.5 to 8.5 s; the last is there at 9
// s.
TEST_CASE("replies leave a server while requests arrive", "[app]") {
  const StepTraffic t{.servers = 1, .up = {20, 40}, .down = {50, 10}};
  const ExchangeTimes times = exchange_times(t, cards(2));
  CHECK(times.servers == Approx(9));
  CHECK(times.ring == 0);
  CHECK(times.all == Approx(9));
}

// Each worker first asks another server, so that both requests of 10 B pass at once, 0 to 1 s, then the others, 1 to 2
// s. Server 0 answers worker 0 from 1.5 to 2.5 s, server 1 worker 1 likewise; then they change: 2.5 to 3.5 s.
TEST_CASE("workers begin with different servers", "[app]") {
  const StepTraffic t{.servers = 2, .up = {10, 10, 10, 10}, .down = {10, 10, 10, 10}};
  CHECK(exchange_times(t, cards(2)).servers == Approx(4));
}

// Three workers sum 30 B: 2·2 steps of 10 B at 10 B/s and a latency of 0.5 s. They gather 5 B each: 2 steps of 0.5 +
// 0.5 s.
TEST_CASE("sums and gathers go round among workers, and share their cards with servers", "[app]") {
  StepTraffic t{.servers = 1, .up = {0, 0, 0}, .down = {0, 0, 0}, .gathered = 5, .reduced = 30};
  CHECK(exchange_times(t, cards(3)).all == Approx(4 * 1.5 + 2 * 1));
  // 100 B up take 10 s and a latency each way; 40 B of the sum pass the same card: 14 s.
  t = {.servers = 1, .up = {100, 0, 0}, .down = {0, 0, 0}, .reduced = 30};
  ExchangeCards c = cards(3);
  CHECK(exchange_times(t, c).servers == Approx(11));
  CHECK(exchange_times(t, c).all == Approx(14));
  c.reduce_is_apart = true;
  CHECK(exchange_times(t, c).all == Approx(11));
}

TEST_CASE("a report of cached training adds up what each step sends", "[app]") {
  const CachedTrainingReport r = report("compute: 1 ms, staleness: 3, cache: 0.2, skew: [1.1, 0.5, 0.9], servers: 2");
  CHECK(r.step() == Approx(1e-3 + r.times.all));
  // 16 B a request, 16 + 4·8 a row; the dense part: (4·16 + 16) + (16·8 + 8) below, (8 + 4·3/2)·16 + 16 and 16 + 1
  // above.
  CHECK(r.up == Approx(16 * r.rows + 48 * r.pushed));
  CHECK(r.down == Approx(48 * r.sent));
  const double dense = 80 + 136 + (14 * 16 + 16) + 17;
  CHECK(r.ring_bytes == Approx(2 * 0.75 * 4 * dense));
  CHECK(r.sent >= r.misses);
  const CachedTrainingReport plain = report("compute: 1 ms, system: hybrid, skew: [1.1, 0.5, 0.9], servers: 2");
  CHECK(plain.rows == r.rows);
  CHECK(plain.sent == plain.rows);
  CHECK(plain.times.servers > r.times.servers);
  CHECK(report("system: het").compute > 0);  // predicted
}

TEST_CASE("cached training tells or refuses what it does not read", "[app][error]") {
  using Keys = std::vector<std::string>;
  CHECK(report("compute: 1 ms, system: hybrid, staleness: 3, policy: lru").unread ==
        Keys{"staleness: there are no caches", "policy: there are no caches"});
  CHECK(report("compute: 1 ms, system: all_gather, servers: 3").unread == Keys{"servers: there are no servers"});
  CHECK(report("compute: 1 ms, system: parameter_server, reduce_bandwidth: 1 GB/s").unread ==
        Keys{"reduce_bandwidth: servers sum gradients"});
  CHECK(report("compute: 1 ms, staleness: 3").unread.empty());
  CHECK_THAT(refusal("seed: 1", "strategy: [single: {}]\n"),
             Catch::Contains("`strategy` is not read: workers of a cached training have the whole dense part"));
  CHECK(refusal("skew: [1, 1]") == "2 exponents for 3 tables\n  hint: give `skew` one exponent, or one for each table");
  CHECK_THAT(refusal("seed: 1", "expect: {step_time: {value: 1 s}}\n"),
             Catch::Contains("`expect` is not read: a cached training has no expectations"));
}
