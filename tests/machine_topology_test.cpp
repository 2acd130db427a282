// SPDX-License-Identifier: Apache-2.0
// The links of generated clusters, and the ways of messages over them.
#include <catch2/catch.hpp>

#include <map>
#include <set>

#include "sim/machine/topology.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

Cluster cluster(const std::string& more, std::int64_t nodes = 1, std::int64_t devices = 8) {
  return read_cluster(
      parse_yaml("nodes: " + std::to_string(nodes) + "\ndevices_per_node: " + std::to_string(devices) +
                     "\ndevice: v100\ndevice_link: {bandwidth: 150 GB/s, latency: 2 us}\nnic: {bandwidth: 10 GB/s, "
                     "latency: 5 us}\n" +
                     more,
                 "c.yaml"),
      "c");
}

std::vector<std::string> way(const Topology& t, std::size_t from, std::size_t to) {
  std::vector<std::string> names;
  for (const std::uint32_t link : t.route(RankId{from}, RankId{to})) names.push_back(t.links()[link].name);
  return names;
}
using LinkNames = std::vector<std::string>;

}  // namespace

TEST_CASE("through a switch a message takes the link out of one device and that into the other",
          "[machine][topology]") {
  const Topology t{cluster("")};
  CHECK(way(t, 1, 6) == LinkNames{"node 0 device 1 out", "node 0 device 6 in"});
}

TEST_CASE("the cube mesh of DGX-1 has six wires of 25 GB/s per GPU, and two hops where there is none",
          "[machine][topology]") {
  const Topology t{cluster("layout: cube_mesh\nhost_link: {bandwidth: 16 GB/s, latency: 1 us, devices_per_switch: 2}")};
  std::map<std::string, double> out;
  for (const TopologyLink& l : t.links())
    if (const std::size_t at = l.name.find("wire "); at != std::string::npos)
      out[l.name.substr(at + 5, 1)] += l.bandwidth.base();
  REQUIRE(out.size() == 8);
  for (const auto& [gpu, rate] : out) CHECK(rate == Approx(150e9));
  CHECK(way(t, 0, 3) == LinkNames{"node 0 wire 0 to 3"});
  CHECK(t.links()[t.route(RankId{0}, RankId{3})[0]].bandwidth.base() == Approx(50e9));
  CHECK(t.links()[t.route(RankId{0}, RankId{1})[0]].bandwidth.base() == Approx(25e9));
  // 0 and 7 share no wire: both are joined with 3 (two wires and one) and with 4 (two and two).
  CHECK(way(t, 0, 7) == LinkNames{"node 0 wire 0 to 4", "node 0 wire 4 to 7"});
}

TEST_CASE("devices behind one PCIe switch talk below it, others share its way up", "[machine][topology]") {
  const Topology t{cluster("layout: pcie\nhost_link: {bandwidth: 16 GB/s, latency: 1 us, devices_per_switch: 4}")};
  CHECK(way(t, 0, 3) == LinkNames{"node 0 device 0 out", "node 0 device 3 in"});
  CHECK(way(t, 0, 5) ==
        LinkNames{"node 0 device 0 out", "node 0 switch 0 up", "node 0 switch 1 down", "node 0 device 5 in"});
}

TEST_CASE("bridges join pairs, and what lies beyond them goes through the host", "[machine][topology]") {
  const Topology t{cluster("layout: pairs\nhost_link: {bandwidth: 16 GB/s, latency: 1 us}", 1, 4)};
  CHECK(way(t, 2, 3) == LinkNames{"node 0 device 2 out", "node 0 device 3 in"});
  CHECK(way(t, 1, 2).size() == 4);
  CHECK(t.links()[t.route(RankId{1}, RankId{2})[1]].bandwidth.base() == Approx(16e9));
}

TEST_CASE("rails keep equal places of a pod off the spines", "[machine][topology]") {
  // 8 nodes of 8 in pods of 4: leaf 3 of pod 0 is of the devices 3 of nodes 0 to 3.
  const Topology t{cluster("network: {shape: fat_tree, rails: true, nodes_per_leaf: 4}", 8)};
  CHECK(way(t, 3, 8 + 3) == LinkNames{"node 0 card 3 out", "node 1 card 3 in"});
  CHECK(way(t, 3, 8 + 4).size() == 4);
  CHECK(way(t, 3, 4 * 8 + 3).size() == 4);
}

TEST_CASE("an oversubscribed leaf has fewer links up than down", "[machine][topology]") {
  // 4 nodes of 8 cards per leaf, twice as much down as up: 16 links up of each of 2 leaves.
  const Topology t{cluster("network: {shape: fat_tree, nodes_per_leaf: 4, oversubscription: 2}", 8)};
  int up = 0;
  for (const TopologyLink& l : t.links()) up += l.name.starts_with("leaf 1 up");
  CHECK(up == 16);
  CHECK(way(t, 0, 9).size() == 2);
  CHECK(way(t, 0, 40).size() == 4);
}

TEST_CASE("hashing spreads pairs over all ways, adaptive routing makes them one", "[machine][topology]") {
  const Topology ecmp{cluster("network: {shape: fat_tree, nodes_per_leaf: 4}", 8)};
  std::set<std::string> used;
  for (std::size_t from = 0; from < 32; ++from)
    for (std::size_t to = 32; to < 64; ++to) used.insert(way(ecmp, from, to)[1]);
  CHECK(used.size() == 32);
  const Topology adaptive{cluster("network: {shape: fat_tree, nodes_per_leaf: 4, routing: adaptive}", 8)};
  CHECK(adaptive.links()[adaptive.route(RankId{0}, RankId{40})[1]].bandwidth.base() == Approx(320e9));
}

TEST_CASE("a dragonfly takes at most one link in each group and one between them", "[machine][topology]") {
  // 16 nodes, 2 at a router, 2 routers per group: 4 groups. Node 0 is at router 0 of group 0, node 15 at router 1 of
  // group 3. The link from 0 to 3 is at router 3 mod 2 = 1 of group 0, and ends at router 0 mod 2 = 0 of group 3.
  const Topology t{
      cluster("network: {shape: dragonfly, nodes_per_router: 2, routers_per_group: 2, global_links: 3}", 16, 1)};
  CHECK(way(t, 0, 15) == LinkNames{"node 0 card 0 out", "group 0 router 0 to 1", "group 0 to group 3",
                                   "group 3 router 0 to 1", "node 15 card 0 in"});
  CHECK(t.links()[t.route(RankId{0}, RankId{15})[2]].bandwidth.base() == Approx(30e9));
  CHECK(way(t, 0, 1).size() == 2);
}

TEST_CASE("on a torus a message goes the shorter way round, dimension after dimension", "[machine][topology]") {
  // 4 × 3: node 0 is (0, 0), node 11 (3, 2): one step back in each.
  const Topology t{cluster("network: {shape: torus, dims: [4, 3]}", 12, 1)};
  CHECK(way(t, 0, 11) == LinkNames{"node 0 card 0 out", "node 0 dim 0 back", "node 3 dim 1 back", "node 11 card 0 in"});
  CHECK(way(t, 0, 2).size() == 4);
}

TEST_CASE("messages avoid links that are down while there are others", "[machine][topology]") {
  const std::string two = "network: {shape: fat_tree, nodes_per_leaf: 1, oversubscription: 1, faults: [";
  const Topology healthy{cluster(two + "]}", 2, 2)};
  const std::string taken = way(healthy, 0, 2)[1];
  const Topology one_down{cluster(two + "{link: " + taken + "}]}", 2, 2)};
  CHECK(way(one_down, 0, 2)[1] != taken);
  const Topology slow{cluster(two + "{link: " + taken + ", bandwidth: 0.25}]}", 2, 2)};
  CHECK(slow.links()[slow.route(RankId{0}, RankId{2})[1]].bandwidth.base() == Approx(2.5e9));
  const Topology cut{cluster(two + "{link: leaf 0 up 0}, {link: leaf 0 up 1}]}", 2, 2)};
  CHECK(user_error([&] { cut.route(RankId{0}, RankId{2}); }) ==
        "no way from leaf 0 to leaf 1: all links between them are down\n  hint: take some out of `network.faults`");
}

TEST_CASE("traffic of others takes its part of every link on its way", "[machine][topology]") {
  const Topology t{cluster("network: {background: [{from: 0, to: 8, bandwidth: 4 GB/s}]}", 2)};
  CHECK(t.links()[t.route(RankId{0}, RankId{15})[0]].bandwidth.base() == Approx(6e9));
  CHECK(t.links()[t.route(RankId{1}, RankId{15})[0]].bandwidth.base() == Approx(10e9));
  CHECK_THAT(user_error([] { Topology{cluster("network: {background: [{from: 0, to: 8, bandwidth: 10 GB/s}]}", 2)}; }),
             Catch::StartsWith("background traffic leaves nothing of node 0 card 0 out"));
}

TEST_CASE("what is said of another shape than the network has is told", "[machine][topology]") {
  using Keys = std::vector<std::string>;
  const auto [network, unused] = GENERATE(table<const char*, Keys>(
      {{"{}", {}},
       {"{oversubscription: 4, rails: true}", {"oversubscription", "rails"}},
       {"{bandwidth: 1 GB/s, nodes_per_router: 2}", {"bandwidth", "nodes_per_router"}},
       {"{shape: fat_tree, nodes_per_leaf: 2, oversubscription: 4, rails: true, bandwidth: 1 GB/s}", {}},
       {"{shape: fat_tree, routing: adaptive, global_links: 2}", {"global_links"}},
       {"{shape: dragonfly, routing: adaptive, routers_per_group: 2}", {"routing"}},
       {"{shape: torus, dims: [2], nodes_per_leaf: 2}", {"nodes_per_leaf"}}}));
  CAPTURE(network);
  CHECK(unused_keys(cluster(std::string{"network: "} + network, 2).network) == unused);
}

TEST_CASE("shapes that do not fit the nodes are refused", "[machine][topology][error]") {
  CHECK_THAT(user_error([] { cluster("network: {shape: torus, dims: [4, 4]}", 12); }),
             Catch::Contains("a torus of 16 nodes for 12"));
  CHECK_THAT(user_error([] { cluster("layout: cube_mesh", 1, 4); }), Catch::Contains("a cube mesh of 4 devices"));
  CHECK_THAT(user_error([] { cluster("network: {background: [{from: 0, to: 99, bandwidth: 1 GB/s}]}", 2); }),
             Catch::Contains("name two of the ranks 0 to 15"));
  CHECK_THAT(user_error([] { Topology{cluster("network: {faults: [{link: node 9 card 0 out}]}", 2)}; }),
             Catch::Contains("unknown link 'node 9 card 0 out'"));
}
