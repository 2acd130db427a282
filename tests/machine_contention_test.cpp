// SPDX-License-Identifier: Apache-2.0
// What links that groups share, or that are slower than a device's, make of collectives: against sums by hand.
#include <catch2/catch.hpp>

#include <numeric>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/parameters.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

/// Devices of 150 GB/s in a node and cards of 10 GB/s, all of which messages reach.
Cluster cluster(const std::string& more, std::int64_t nodes = 1, std::int64_t devices = 8) {
  return read_cluster(parse_yaml("nodes: " + std::to_string(nodes) + "\ndevices_per_node: " + std::to_string(devices) +
                                     "\ndevice: v100\ndevice_link: {bandwidth: 150 GB/s, latency: 2 us}\n"
                                     "host_link: {bandwidth: 15 GB/s, latency: 2 us, devices_per_switch: 4}\n"
                                     "nic: {bandwidth: 10 GB/s, latency: 5 us}\n" +
                                     more,
                                 "c.yaml"),
                      "c");
}

std::vector<RankId> members(std::initializer_list<std::size_t> ranks) {
  std::vector<RankId> out;
  for (const std::size_t r : ranks) out.emplace_back(r);
  return out;
}

/// `n` ranks, every `stride`-th.
std::vector<RankId> every(std::size_t stride, std::size_t n) {
  std::vector<RankId> out;
  for (std::size_t i = 0; i < n; ++i) out.emplace_back(i * stride);
  return out;
}

Slowdown slowdown_of(const Cluster& c, CollectiveKind kind, const std::vector<RankId>& ranks,
                     Sharing sharing = Sharing::Together) {
  const ClusterCostModel cost{c, find_device("v100", {parameters_folder()})};
  return slowdown(Topology{c}, Collective{.kind = kind, .root = kind == CollectiveKind::Shift, .bytes = 1.0_MB}, ranks,
                  cost, sharing);
}

constexpr CollectiveKind kSum = CollectiveKind::AllReduce, kAllToAll = CollectiveKind::AllToAll;

}  // namespace

TEST_CASE("where a switch joins devices and nodes nothing is slower than its ends", "[machine][contention]") {
  const Cluster c = cluster("", 4);
  CHECK_FALSE(is_narrow(c));
  for (const CollectiveKind kind : {kSum, kAllToAll, CollectiveKind::Broadcast, CollectiveKind::Shift}) {
    const Slowdown s = slowdown_of(c, kind, every(1, 32));
    CHECK(s.inside == Approx(1));
    CHECK(s.between == Approx(1));
  }
}

TEST_CASE("the ring of a fat tree's leaf shares what it has upwards", "[machine][contention]") {
  // Two nodes of 8 cards of 10 GB/s under a leaf with 16/8 = 2 links up: the 8 flows that leave it have 20 of 80 GB/s.
  const Cluster c = cluster("network: {shape: fat_tree, nodes_per_leaf: 2, oversubscription: 8}", 8);
  REQUIRE(is_narrow(c));
  CHECK(slowdown_of(c, kSum, every(1, 64)).between == Approx(4));
  CHECK(slowdown_of(c, kSum, every(1, 64)).inside == Approx(1));
  // One rank of each node, and the seven groups beside it: as many flows. Alone it has the link that it needs.
  CHECK(slowdown_of(c, kSum, every(8, 8)).between == Approx(4));
  CHECK(slowdown_of(c, kSum, every(8, 8), Sharing::Alone).between == Approx(1));
  // Whichever of the eight is asked for.
  CHECK(slowdown_of(c, kSum, members({5, 13, 21, 29, 37, 45, 53, 61})).between == Approx(4));
  // Of the 8 others of an all-to-all that lie on other nodes 6 of 7 lie beyond the leaf: 16 · 10 · 6/7 of 20 GB/s.
  CHECK(slowdown_of(c, kAllToAll, every(1, 64)).between == Approx(16.0 * 10 * 6 / 7 / 20));
}

TEST_CASE("rings along rails do not meet above the leaves", "[machine][contention]") {
  const Cluster c = cluster("network: {shape: fat_tree, rails: true, nodes_per_leaf: 2, oversubscription: 2}", 8);
  CHECK(slowdown_of(c, kSum, every(1, 64)).between == Approx(1));
  CHECK(slowdown_of(c, kAllToAll, every(1, 64)).between > 1.5);
}

TEST_CASE("the cards of a node share its one link of a torus", "[machine][contention]") {
  const Cluster c = cluster("network: {shape: torus, dims: [4, 2]}", 8);
  CHECK(slowdown_of(c, kSum, every(1, 64)).between == Approx(8));
  const Cluster one_card = cluster("network: {shape: torus, dims: [8]}", 8, 1);
  CHECK(slowdown_of(one_card, kSum, every(1, 8)).between == Approx(1));
  // From each of 8 nodes in a circle 10 GB/s to 7 others: over a link one way those 1 to 4 further, which pass it from
  // as many nodes: 1 + 2 + 3 + 4 flows.
  CHECK(slowdown_of(one_card, kAllToAll, every(1, 8)).between == Approx(10.0 / 7));
}

TEST_CASE("rings in a cube mesh have the wires between their members", "[machine][contention]") {
  const Cluster c = cluster("layout: cube_mesh");
  CHECK(slowdown_of(c, kSum, every(1, 8)).inside == Approx(1));
  CHECK(slowdown_of(c, kSum, every(1, 4)).inside == Approx(6.0 / 4));
  CHECK(slowdown_of(c, kSum, members({0, 1})).inside == Approx(6));
  CHECK(slowdown_of(c, kSum, members({0, 3})).inside == Approx(3));
  // No wire from 0 to 5: over that of 4, or of 1, each of which has one wire of the two on the way.
  CHECK(slowdown_of(c, kSum, members({0, 5})).inside == Approx(6));
  // To each of the 7 others a 7th of 6 wires; over the busiest wire flows of others, too.
  CHECK(slowdown_of(c, kAllToAll, every(1, 8)).inside >= 6.0 / 7);
}

TEST_CASE("beyond a pair messages have PCIe", "[machine][contention]") {
  const Cluster c = cluster("layout: pairs");
  CHECK(slowdown_of(c, kSum, members({0, 1})).inside == Approx(1));
  CHECK(slowdown_of(c, kSum, every(1, 4)).inside == Approx(10));  // below one PCIe switch
  CHECK(slowdown_of(c, kSum, every(1, 8)).inside == Approx(10));  // one flow up each switch
  CHECK(slowdown_of(c, kSum, every(4, 2)).inside == Approx(40));  // and the three groups beside it
  CHECK(slowdown_of(c, kSum, every(4, 2), Sharing::Alone).inside == Approx(10));
}

TEST_CASE("devices behind one PCIe switch share its way up", "[machine][contention]") {
  const Cluster c = cluster("layout: pcie");
  CHECK(slowdown_of(c, kSum, every(1, 8)).inside == Approx(1));
  // Four devices, each of which sends 4 of 7 parts beyond.
  CHECK(slowdown_of(c, kAllToAll, every(1, 8)).inside == Approx(16.0 / 7));
}

TEST_CASE("a link that is worn holds up all of its ring", "[machine][contention]") {
  const Cluster c = cluster("network: {faults: [{link: node 0 device 3 out, bandwidth: 0.25}]}", 2);
  CHECK(slowdown_of(c, kSum, every(1, 8)).inside == Approx(4));
  CHECK(slowdown_of(c, kSum, every(1, 3)).inside == Approx(1));
}

TEST_CASE("all-to-alls of many ranks are told by some of their pairs", "[machine][contention]") {
  // 1,024 nodes of one card, 32 under each leaf with 16 links up: 992 of 1,023 parts leave it.
  const Cluster c = cluster("network: {shape: fat_tree, nodes_per_leaf: 32, oversubscription: 2}", 1024, 1);
  CHECK(slowdown_of(c, kAllToAll, every(1, 1024)).between == Approx(2.0 * 992 / 1023).epsilon(0.05));
}

TEST_CASE("what is shared makes a collective's bytes slower, not its start", "[machine][contention][hw_models]") {
  const auto seconds = [](const std::string& network, Bytes bytes) {
    const ClusterCostModel cost{cluster(network, 8, 1), find_device("v100", {parameters_folder()})};
    cost.collective(Collective{.kind = kSum}, every(1, 8));  // what it sends nothing for holds for no other
    return cost.collective(Collective{.kind = kSum, .bytes = bytes}, every(1, 8)).duration.base();
  };
  const std::string wide = "network: {shape: fat_tree, nodes_per_leaf: 1}";
  const std::string narrow = "network: {shape: fat_tree, nodes_per_leaf: 1, bandwidth: 2.5 GB/s}";
  const double start = seconds(wide, Bytes{0});
  CHECK(seconds(narrow, Bytes{0}) == Approx(start));
  CHECK(seconds(narrow, 1.0_GB) - start == Approx(4 * (seconds(wide, 1.0_GB) - start)).epsilon(1e-3));
}

TEST_CASE("what one rank of a node sends up from a leaf the others of the node send beside it",
          "[machine][contention]") {
  // Two stages of 16 ranks: 16 cards of 10 GB/s, two links up.
  const ClusterCostModel wide{cluster("", 4), find_device("v100", {parameters_folder()})};
  const ClusterCostModel narrow{cluster("network: {shape: fat_tree, nodes_per_leaf: 2, oversubscription: 8}", 4),
                                find_device("v100", {parameters_folder()})};
  const auto seconds = [](const ClusterCostModel& cost, std::size_t from, std::size_t to) {
    return (cost.transfer(1.0_GB, RankId{from}, RankId{to}).duration -
            cost.transfer({}, RankId{from}, RankId{to}).duration)
        .base();
  };
  for (const std::size_t from : {0, 3, 15}) {
    CHECK(seconds(narrow, from, from + 16) == Approx(8 * seconds(wide, from, from + 16)));
    CHECK(seconds(narrow, from, from ^ 1) == Approx(seconds(wide, from, from ^ 1)));
  }
  CHECK(seconds(narrow, 0, 8) == Approx(seconds(wide, 0, 8)));  // below the leaf
  // An eighth of its card is what it has, so that what goes another way is not held up.
  const OpCost held = narrow.transfer(1.0_GB, RankId{0}, RankId{16});
  REQUIRE(held.used().size() == 1);
  CHECK(held.used()[0].resource == Resource::Nic);
  CHECK(held.used()[0].share == Approx(1.0 / 8));
}

TEST_CASE("faster links between switches alone widen what is narrow", "[machine][contention][hw_models]") {
  const auto seconds = [](const std::string& network, double faster) {
    ClusterCostModel cost{cluster(network, 8, 1), find_device("v100", {parameters_folder()})};
    cost.scale_parameter("network.bandwidth", faster);
    return cost.collective(Collective{.kind = kSum, .bytes = 1.0_GB}, every(1, 8)).duration.base();
  };
  const std::string wide = "network: {shape: fat_tree, nodes_per_leaf: 2}";
  const std::string narrow = "network: {shape: fat_tree, nodes_per_leaf: 2, bandwidth: 5 GB/s, oversubscription: 2}";
  CHECK(seconds(wide, 2) == Approx(seconds(wide, 1)));
  CHECK(seconds(wide, 0.5) == Approx(seconds(wide, 1)));  // two links up, of which a ring takes one
  CHECK(seconds(wide, 0.25) > 1.9 * seconds(wide, 1));
  CHECK(seconds(narrow, 1) > 1.9 * seconds(wide, 1));
  CHECK(seconds(narrow, 2) == Approx(seconds(wide, 1)));
}
