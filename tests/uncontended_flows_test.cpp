// SPDX-License-Identifier: Apache-2.0
// Flows that SimGrid shares, and those that it need not: by hand, and against SimGrid for each flow.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "sim/base/random.hpp"
#include "sim/engine/flow_network.hpp"
#include "tests/test_clusters.hpp"

using namespace orrery;
using namespace orrery::literals;
using orrery::testing::cluster_of;

namespace {

struct Message {
  std::int64_t at_ps = 0;
  RankId from, to;
  Bytes bytes;
};

/// Sends messages when they are due, in order, and notes when each is through.
class Sender final : public Network::Client {
 public:
  Sender(Network& network, std::vector<Message> messages)
      : network_{network}, messages_{std::move(messages)}, ends_(messages_.size(), -1) {
    network.run(0, *this);
  }
  std::int64_t advance(std::int64_t now_ps, std::span<const std::uint32_t> through) override {
    for (const std::uint32_t m : through) ends_[m] = now_ps;
    for (; next_ < messages_.size() && messages_[next_].at_ps <= now_ps; ++next_) {
      const Message& m = messages_[next_];
      network_.send(static_cast<std::uint32_t>(next_), m.from, m.to, {}, m.bytes);
    }
    return next_ < messages_.size() ? messages_[next_].at_ps : Network::kNever;
  }
  const std::vector<std::int64_t>& ends() const { return ends_; }

 private:
  Network& network_;
  std::vector<Message> messages_;
  std::vector<std::int64_t> ends_;
  std::size_t next_ = 0;
};

std::vector<std::int64_t> ends_of(const Cluster& cluster, const std::vector<Message>& messages,
                                  SolvedFlows solved = SolvedFlows::Contended) {
  const auto network = make_flow_network(Topology{cluster}, solved);
  return Sender{*network, messages}.ends();
}

RankId rank(std::size_t r) { return RankId{r}; }

constexpr std::int64_t kMicro = 1'000'000;  // ps

}  // namespace

TEST_CASE("a flow keeps its rate until another one crosses one of its links", "[engine][flow][sharing]") {
  // Two nodes, a card of 10 GB/s each. 10 MB take 1000 us alone. After 400 us 4 MB begin beside it: both have half.
  // They are through after 800 us more; the first one has 2 MB left then, and its card to itself.
  const Cluster c = cluster_of(2, 2, NicPlacement::PerNode);
  const std::vector<std::int64_t> ends = ends_of(c, {{0, rank(0), rank(2), 10.0_MB},
                                                     {400 * kMicro, rank(1), rank(3), 4.0_MB},
                                                     {500 * kMicro, rank(0), rank(1), 1.0_MB},
                                                     {1500 * kMicro, rank(2), rank(0), 1.0_MB}});
  CHECK(std::abs(ends[0] - 1400 * kMicro) <= 10);
  CHECK(std::abs(ends[1] - 1200 * kMicro) <= 10);
  CHECK(std::abs(ends[2] - 510 * kMicro) <= 10);   // inside the node: 100 GB/s
  CHECK(std::abs(ends[3] - 1600 * kMicro) <= 10);  // the other way
}

TEST_CASE("a flow that another one has slowed slows a third one", "[engine][flow][sharing]") {
  // Cards out of node 0 and into node 2 have 10 GB/s. 0 to 2 and 1 to 2, from two nodes: 5 each. Then 0 to 1 begins:
  // it shares the card out of node 0 with a flow that has 5 already, so it has 5 as well.
  const Cluster c = cluster_of(3, 1, NicPlacement::PerNode);
  const std::vector<std::int64_t> ends = ends_of(c, {{0, rank(0), rank(2), 10.0_MB},
                                                     {100 * kMicro, rank(1), rank(2), 4.0_MB},
                                                     {200 * kMicro, rank(0), rank(1), 2.0_MB}});
  CHECK(std::abs(ends[2] - 600 * kMicro) <= 10);
  CHECK(std::abs(ends[1] - 900 * kMicro) <= 10);
  CHECK(std::abs(ends[0] - 1400 * kMicro) <= 10);
}

TEST_CASE("flows that all share what holds them back have equal parts of it", "[engine][flow][sharing]") {
  // Ranks 0, 1 and 2 of node 0 send to node 1: a third of 10 GB/s each, until 0 is through with 2 MB after 600 us; a
  // half until 1 is through with 2 MB more, after 400 us; 2 has 2 MB left then, and 200 us to go. From 1100 us on it
  // shares what comes into node 1 with rank 8, which nobody else holds back: both have half, 2's last 1 MB takes 200
  // us.
  const Cluster c = cluster_of(3, 4, NicPlacement::PerNode);
  const std::vector<std::int64_t> ends = ends_of(c, {{0, rank(0), rank(4), 2.0_MB},
                                                     {0, rank(1), rank(5), 4.0_MB},
                                                     {0, rank(2), rank(6), 6.0_MB},
                                                     {1100 * kMicro, rank(8), rank(7), 2.0_MB}});
  CHECK(std::abs(ends[0] - 600 * kMicro) <= 10);
  CHECK(std::abs(ends[1] - 1000 * kMicro) <= 10);
  CHECK(std::abs(ends[2] - 1300 * kMicro) <= 10);
  CHECK(std::abs(ends[3] - 1400 * kMicro) <= 10);
}

TEST_CASE("flows that meet at one instant or later end as if each were solved for", "[engine][flow][sharing]") {
  const auto network = GENERATE(as<std::string>{}, "none", "fat tree", "rails", "adaptive", "torus", "dragonfly");
  const auto cards = GENERATE(NicPlacement::PerNode, NicPlacement::PerDevice);
  const auto spread_us = GENERATE(0, 300, 3000);
  const bool to_next_node = GENERATE(false, true);  // most links that are full have the same flows then
  CAPTURE(network, cards == NicPlacement::PerNode, spread_us, to_next_node);
  Cluster c = cluster_of(16, 4, cards);
  c.network.nodes_per_leaf = 4, c.network.oversubscription = 2;
  if (network != "none") c.network.shape = NetworkShape::FatTree;
  if (network == "rails") c.network.rails = true;
  if (network == "adaptive") c.network.routing = Routing::Adaptive;
  if (network == "torus") c.network.shape = NetworkShape::Torus, c.network.dims = {4, 4};
  if (network == "dragonfly") {
    c.network.shape = NetworkShape::Dragonfly;
    c.network.nodes_per_router = 2, c.network.routers_per_group = 4, c.network.global_links = 2;
  }
  c.network.faults = {{"node 1 card 0 out", 0.4}, {"node 2 device 1 in", 0.05}};
  c.network.background = {{12, 40, 3.0_GBps}};
  Random random{7, static_cast<std::uint64_t>(spread_us)};
  const auto draw = [&](std::uint64_t n) { return static_cast<std::size_t>(random.below(n)); };
  std::vector<Message> messages;
  for (int i = 0; i < 400; ++i) {
    // Few sizes and instants, so that flows are equal now and then; some pairs more than once.
    const std::size_t from = draw(64), step = to_next_node ? 4 : 1 + draw(63);
    const auto at = spread_us == 0 ? 0 : static_cast<std::int64_t>(draw(40)) * spread_us * kMicro / 10;
    messages.push_back({at, rank(from), rank((from + step) % 64), Bytes{1e5 * double(1 + draw(4))}});
  }
  std::stable_sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) { return a.at_ps < b.at_ps; });
  const auto each = ends_of(c, messages, SolvedFlows::All), ours = ends_of(c, messages);
  REQUIRE(ours.size() == each.size());
  double worst = 0;
  for (std::size_t i = 0; i < each.size(); ++i) {
    const auto length = static_cast<double>(each[i] - messages[i].at_ps);
    REQUIRE(length > 0);
    worst = std::max(worst, std::abs(static_cast<double>(ours[i] - each[i])) / length);
  }
  CHECK(worst <= 1e-7);
}

TEST_CASE("all-to-alls of devices that are alike, and what comes between, end as if each flow were solved for",
          "[engine][flow][sharing]") {
  // Each of 4 nodes sends 3 MB to each other one: a third of 10 GB/s for each, 900 us. So do nodes 4 to 7 from 300 us
  // on. A message of 1 MB from 0 to 4 at 450 us has a fourth of both cards, and slows all that waits for them.
  const Cluster c = cluster_of(8, 1);
  std::vector<Message> messages;
  for (const std::int64_t first : {0, 4})
    for (std::int64_t a = 0; a < 4; ++a)
      for (std::int64_t b = 0; b < 4; ++b)
        if (a != b)
          messages.push_back({first * 75 * kMicro, rank(static_cast<std::size_t>(first + a)),
                              rank(static_cast<std::size_t>(first + b)), 3.0_MB});
  const std::vector<std::int64_t> alone = ends_of(c, messages);
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(std::abs(alone[i] - messages[i].at_ps - 900 * kMicro) <= 10);
  messages.push_back({450 * kMicro, rank(0), rank(4), 1.0_MB});
  const auto each = ends_of(c, messages, SolvedFlows::All), ours = ends_of(c, messages);
  CHECK(std::abs(ours.back() - 850 * kMicro) <= 10);
  for (std::size_t i = 0; i < each.size(); ++i) CHECK(std::abs(double(ours[i] - each[i])) <= 1e-7 * double(each[i]));
}

TEST_CASE("what a run leaves behind does not slow the next one", "[engine][flow]") {
  const Cluster c = cluster_of(2, 2, NicPlacement::PerNode);
  const auto network = make_flow_network(Topology{c});
  struct Failing final : Network::Client {
    Network* network = nullptr;
    std::int64_t advance(std::int64_t now_ps, std::span<const std::uint32_t>) override {
      if (now_ps > 0) throw 1;
      for (std::size_t r = 0; r < 2; ++r)
        network->send(static_cast<std::uint32_t>(r), rank(r), rank(2 + r), {}, 10.0_MB);
      network->send(2, rank(3), rank(2), {}, 10.0_MB);
      return kMicro;
    }
  } failing;
  failing.network = network.get();
  CHECK_THROWS(network->run(0, failing));
  const std::vector<std::int64_t> ends = Sender{*network, {{0, rank(0), rank(2), 10.0_MB}}}.ends();
  CHECK(std::abs(ends[0] - 1000 * kMicro) <= 10);
}
