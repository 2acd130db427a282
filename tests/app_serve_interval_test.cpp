// SPDX-License-Identifier: Apache-2.0
// Intervals of what users of a server get, and what of a scenario's serving options makes no sense.
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/app/accuracy/deviation_fit.hpp"
#include "sim/app/serving/serve_interval.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;

namespace {

/// Steps that take a second to read prompts, a tenth of one to decode.
class TwoTimes final : public StepTimes {
 public:
  double step(const BatchShape& shape) override { return shape.prompts > 0 ? 1 : 0.1; }
  double front(std::int64_t /*prompt*/) override { return 0; }
  double swap(std::int64_t /*blocks*/) override { return 0; }
  double hand_over(std::int64_t /*tokens*/) override { return 0; }
  double answer() override { return 0; }
};

class Requests final : public RequestSource {
 public:
  explicit Requests(std::vector<Request> all) : all_{std::move(all)} {}
  std::optional<Request> next() override {
    if (at_ == all_.size()) return std::nullopt;
    return all_[at_++];
  }

 private:
  std::vector<Request> all_;
  std::size_t at_ = 0;
};

std::vector<Answer> answers_of(const ServeOptions& options, const std::vector<Request>& requests, StepFactors factors) {
  TwoTimes two;
  ScaledTimes times{two, factors};
  Requests source{requests};
  std::vector<Answer> all(requests.size());
  serve({.options = options,
         .blocks = {.device = 1000, .tokens = 16},
         .source = source,
         .times = times,
         .on_answer = [&](const Answer& a) { all[static_cast<std::size_t>(a.id)] = a; }});
  return all;
}

Request request(std::int64_t id, double arrival, std::int64_t output) {
  Request r;
  r.id = id, r.arrival = arrival, r.prompt = 16, r.output = output;
  return r;
}

}  // namespace

TEST_CASE("a request is as unsure as the steps it waits for", "[serving]") {
  ServeOptions o;
  o.replica.max_sequences = 1;  // the second waits for the whole answer of the first, 1 + 20 · 0.1 = 3 s
  o.replica.prefix_sharing = false;
  const std::vector<Request> two{request(0, 0, 21), request(1, 0, 2)};
  const StepDoubt doubt{.decodes = 0.01, .prompts = 0.1};
  OtherAnswers others;
  const auto runs = other_runs(doubt);
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const Answer& a : answers_of(o, two, runs[i])) others.add(i, a);
  const std::vector<Answer> answers = answers_of(o, two, {});
  CHECK(answers[1].ttft() == Approx(4));
  const double d = std::exp(1.6448536 * 0.01), p = std::exp(1.6448536 * 0.1);
  const auto first = others.intervals(answers[0], {1, 1, 1}), second = others.intervals(answers[1], {1, 1, 2});
  CHECK(first[0].high == Approx(p).epsilon(1e-6));  // its own step reads a prompt
  CHECK(first[0].low == Approx(1 / p).epsilon(1e-6));
  CHECK(first[1].high == Approx(0.1 * d).epsilon(1e-6));  // its tokens come of steps that decode
  // two steps of prompts, 20 that decode: errors of a kind add up, those of both kinds in squares
  const double longer = std::hypot(std::log((2 + 2 * d) / 4), std::log((2 * p + 2) / 4));
  CHECK(second[0].high == Approx(4 * std::exp(longer)).epsilon(1e-6));
  const double whole = std::hypot(std::log((2 + 2.1 * d) / 4.1), std::log((2 * p + 2.1) / 4.1));
  CHECK(second[2].high == Approx(4.1 * std::exp(2 * whole)).epsilon(1e-6));  // told to be twice as far off
}

TEST_CASE("deviations of single requests and of all others are told apart", "[published]") {
  SoftwareProfile p;
  p.deviations = {{"first", 0.2}, {"each_first", 0.4}, {"each_token", 0.9}};
  set_deviations(p, {{"each_first", 9, 3, 0.5}});
  CHECK(p.deviations == std::map<std::string, double>{{"first", 0.2}, {"each_first", 0.5}});
  set_deviations(p, {{"first", 9, 3, 0.3}});
  CHECK(p.deviations == std::map<std::string, double>{{"first", 0.3}, {"each_first", 0.5}});
  CHECK(multiples_of(p) == std::array{0.5, 1.0, 1.0});
}

TEST_CASE("each request has its interval, and the mean has that of the same runs", "[serving]") {
  const testing::TemporaryFolder folder;
  const std::string scenario =
      folder.file("s.yaml",
                  "model: llama-3-8b\ncluster: dgx_h100\nstrategy: [parallel: {mesh: tp1}]\n"
                  "profile: vllm\nworkload:\n  serve: {context: 4096, traffic: {requests: 1}}\n");
  const std::string file = folder / "requests.csv";
  const auto r = testing::orrery({"serve", scenario, "--json", "--requests", file});
  REQUIRE(r.code == 0);
  const auto ttft = nlohmann::json::parse(r.out)["ttft"];
  const std::string text = read_file(file);
  CHECK_THAT(text, Catch::Contains("preemptions,ttft_s,ttft_low_s,ttft_high_s,tpot_s"));
  CHECK_THAT(text, Catch::Contains(fmt::format(",{:.6f},{:.6f},{:.6f},", ttft["mean"].get<double>(),
                                               ttft["low"].get<double>(), ttft["high"].get<double>())));
  testing::orrery({"serve", scenario, "--no-interval", "--requests", file});
  CHECK_THAT(read_file(file), Catch::Contains("preemptions,ttft_s,tpot_s,e2e_s\n"));
}

TEST_CASE("a pool that the device cannot hold is refused where it stands", "[serving]") {
  const testing::TemporaryFolder folder;
  const auto served = [&](const std::string& replica) {
    return testing::orrery({"serve", "--no-interval",
                            folder.file("s.yaml",
                                        "model: llama-3-8b\ncluster: dgx_h100\nstrategy: [parallel: {mesh: tp1}]\n"
                                        "workload:\n  serve:\n    traffic: {requests: 4}\n    replica:\n      " +
                                            replica + "\n")});
  };
  const auto large = served("kv_tokens: 1000000");
  CHECK(large.code == 2);
  CHECK_THAT(large.err, Catch::Contains("s.yaml:8:18: keys and values of 1000000 tokens are 122 GiB on a rank, but 80 "
                                        "GiB have room for 63.5 GiB: 15 GiB are weights"));
  CHECK_THAT(large.err, Catch::Contains("set `kv_tokens` to at most "));
  CHECK(served("kv_tokens: 100000").code == 0);
  CHECK_THAT(served("kv_tokens: 8").err, Catch::Contains("8:18: a pool of 8 tokens is not one block of 16"));
  CHECK_THAT(served("{preemption: swap, swap: 1000 TiB}").err,
             Catch::Contains("1000 TiB of the host to swap, but a device's share of it is "));
}

TEST_CASE("keys that others leave without meaning are told", "[serving]") {
  const testing::TemporaryFolder folder;
  folder.file("t.csv", "arrival_s,input_tokens,output_tokens\n0,10,5\n");
  const auto unread = [&](const std::string& serve) {
    const auto r =
        testing::orrery({"serve", "--no-interval", "--json",
                         folder.file("s.yaml",
                                     "model: llama-3-8b\ncluster: dgx_h100\nstrategy: [parallel: {mesh: tp1}]\n"
                                     "workload:\n  serve: " +
                                         serve + "\n")});
    return nlohmann::json::parse(r.out)["unread"].get<std::vector<std::string>>();
  };
  using All = std::vector<std::string>;
  CHECK(unread("{traffic: {requests: 2, rate: 3, arrival: gamma, cv: 2}}").empty());
  CHECK(unread("{traffic: {requests: 2, arrival: even, cv: 2}}") == All{"traffic.cv: arrivals are even"});
  CHECK(unread("{traffic: {requests: 2, prompt: {mean: 9, deviation: 3}}}") ==
        All{"traffic.prompt.deviation: lengths are fixed"});
  CHECK(unread("{traffic: {requests: 2, run: a}, replica: {swap: 1 GiB, conservativeness: 2}}") ==
        All{"traffic.run: there is no trace", "replica.swap: preemption is recompute",
            "replica.conservativeness: the scheduler is vllm_v1"});
  CHECK(unread("{traffic: {trace: t.csv, rate: 3}}") == All{"traffic.rate: requests come from the trace"});
  CHECK_THAT(testing::orrery({"serve", folder / "s.yaml"}).out,
             Catch::Contains("  not read           traffic.rate: requests come from the trace\n"));
}
