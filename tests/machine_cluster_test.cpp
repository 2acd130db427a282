// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <filesystem>

#include "sim/machine/cluster.hpp"
#include "sim/machine/resources.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

constexpr const char* kTwoNodes = R"(
nodes: 2
devices_per_node: 4
device: h100_sxm
host: {cores: 16, memory: 1 TiB, memory_bandwidth: 200 GB/s}
device_link: {name: NVLink, bandwidth: 450 GB/s, latency: 2 us}
host_link: {bandwidth: 63 GB/s, latency: 2 us}
nic: {name: NDR, per: node, bandwidth: 400 Gb/s, latency: 5 us}
)";

Cluster two_nodes() { return read_cluster(parse_yaml(kTwoNodes, "c.yaml"), "c"); }

}  // namespace

TEST_CASE("a cluster file gives nodes, links and cards with their units", "[machine]") {
  const Cluster c = two_nodes();
  CHECK(c.num_ranks() == 8);
  CHECK(c.device_link->bandwidth.base() == 450e9);
  CHECK(c.nic->bandwidth.base() == 50e9);  // 400 Gb/s = 50 GB/s
  CHECK(c.nic->per == NicPlacement::PerNode);
  CHECK(c.host.memory->base() == 1099511627776.0);
  CHECK(c.same_node(RankId{0}, RankId{3}));
  CHECK_FALSE(c.same_node(RankId{3}, RankId{4}));
}

TEST_CASE("what a cluster file leaves out of its host is that of this computer", "[machine]") {
  const Cluster c = read_cluster(parse_yaml("device: v100", "c.yaml"), "c");
  CHECK(c.host.cores == detected_cores());
  CHECK(*c.host.memory == detected_memory());
  // How many of its own cores count, its parameters say.
  const Cluster own = read_cluster(parse_yaml("device: host", "c.yaml"), "c");
  CHECK_FALSE(own.host.cores);
  CHECK(*own.host.memory == detected_memory());
}

TEST_CASE("a bandwidth without a unit is refused with the place and an example", "[machine][error]") {
  const std::string text = "device: host\ndevice_link: {bandwidth: 450, latency: 2 us}\n";
  CHECK_THAT(user_error([&] { read_cluster(parse_yaml(text, "c.yaml"), "c"); }),
             Catch::Contains("c.yaml:2:26") && Catch::Contains("unit"));
}

TEST_CASE("a bandwidth in bytes is refused: it is a rate", "[machine][error]") {
  const std::string text = "device: host\ndevice_link: {bandwidth: 450 GB, latency: 2 us}\n";
  CHECK_THAT(user_error([&] { read_cluster(parse_yaml(text, "c.yaml"), "c"); }), Catch::Contains("c.yaml:2:26"));
}

TEST_CASE("a cluster has at most as many devices as a mesh has ranks", "[machine][error]") {
  const auto error = [](const std::string& nodes) {
    const std::string text = "{nodes: " + nodes + ", devices_per_node: 1000000000, device: v100}";
    return user_error([&] { read_cluster(parse_yaml(text, "c.yaml"), "c"); });
  };
  CHECK_THAT(error("2"), Catch::Contains("a cluster of 2000000000 devices") && Catch::Contains("at most 10000000"));
  CHECK_THAT(error("1000000000000"), Catch::Contains("a cluster of 1000000000000000000000 devices"));  // no overflow
}

TEST_CASE("an unknown key of a cluster names the nearest legal one", "[machine][error]") {
  CHECK_THAT(user_error([&] { read_cluster(parse_yaml("device: host\nnode: 2\n", "c.yaml"), "c"); }),
             Catch::Contains("c.yaml:2:1") && Catch::Contains("did you mean 'nodes'?"));
}

TEST_CASE("several nodes need a network between them", "[machine][error]") {
  CHECK(user_error([&] { read_cluster(parse_yaml("{nodes: 2, device: host}", "c.yaml"), "c"); }) ==
        "c.yaml:1:1: 2 nodes have no network between them\n"
        "  {nodes: 2, device: host}\n"
        "  ^\n"
        "  hint: add `nic: {bandwidth: 400 Gb/s, latency: 5 us}`, or use 1 node");
}

TEST_CASE("a mesh larger than the cluster is refused with the nodes it needs", "[machine][error]") {
  // 8 devices; 9 ranks need ⌈9/4⌉ = 3 nodes.
  CHECK(user_error([] { check_fits(two_nodes(), 9); }) ==
        "the mesh has 9 ranks and cluster 'c' has 8 devices (2 nodes of 4 each)\n"
        "  hint: use a smaller mesh or `nodes: 3`");
  CHECK_NOTHROW(check_fits(two_nodes(), 8));
  Cluster own = two_nodes();  // that a scenario holds itself
  own.name = kInline;
  CHECK(user_error([&] { check_fits(own, 9); }) ==
        "the mesh has 9 ranks and the cluster has 8 devices (2 nodes of 4 each)\n"
        "  hint: use a smaller mesh or `nodes: 3`");
}

TEST_CASE("ranks share what belongs to their node and nothing else", "[machine]") {
  const ClusterResources r{two_nodes()};
  CHECK(r.instance(Resource::Sm, RankId{5}) == 5);
  CHECK(r.instance(Resource::Link, RankId{5}) == 5);
  CHECK(r.instance(Resource::CpuCores, RankId{5}) == 1);
  CHECK(r.instance(Resource::Nic, RankId{5}) == 1);  // one card per node
  CHECK(r.count(Resource::Sm) == 8);
  CHECK(r.count(Resource::Disk) == 2);
  CHECK(r.capacity(Resource::CpuCores, 1) == 16);
  CHECK(r.capacity(Resource::Hbm, 0) == 1);
}

TEST_CASE("every shipped cluster reads, and its file says what it is", "[machine]") {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator{ORRERY_SOURCE_DIR "/scenarios/clusters"}) {
    INFO(file.path().string());
    const Cluster c = load_cluster(file.path().string());
    CHECK_FALSE(c.summary.empty());
    CHECK(c.name == file.path().stem().string());
    ++files;
  }
  CHECK(files >= 5);
}

TEST_CASE("nodes of other kinds come after the cluster's own, with their devices", "[machine]") {
  // 2 nodes of 4, then 1 node of 8, then 3 nodes of 1: 19 ranks on 6 nodes.
  const std::string nic = "nic: {bandwidth: 100 Gb/s, latency: 5 us}";
  const Cluster c =
      read_cluster(parse_yaml("{nodes: 2, devices_per_node: 4, device: v100, host: {cores: 8}, " + nic +
                                  ", more_nodes: [{devices_per_node: 8, device: a100_80g, host: {cores: 64}, " + nic +
                                  "}, {nodes: 3, device: p100, " + nic + "}]}",
                              "c.yaml"),
                   "c");
  CHECK(c.num_ranks() == 19);
  CHECK(c.num_nodes() == 6);
  CHECK(c.device_of(RankId{7}) == "v100");
  CHECK(c.device_of(RankId{8}) == "a100_80g");
  CHECK(c.device_of(RankId{18}) == "p100");
  CHECK(c.same_node(RankId{8}, RankId{15}));
  CHECK_FALSE(c.same_node(RankId{7}, RankId{8}));
  CHECK(c.node_of(RankId{18}) == 5);
  const ClusterResources r{c};
  CHECK(r.instance(Resource::CpuCores, RankId{15}) == 2);
  CHECK(r.capacity(Resource::CpuCores, 2) == 64);
  CHECK(r.count(Resource::CpuCores) == 6);
  CHECK(r.count(Resource::Hbm) == 19);
}

TEST_CASE("cards that some kinds of nodes share and others do not have numbers of their own", "[machine]") {
  // 1 node of 2 with a card each: instances 0 and 1; 2 nodes of 2 that share one: 6 + node, behind all ranks.
  const Cluster c = read_cluster(
      parse_yaml(
          "{devices_per_node: 2, device: v100, nic: {bandwidth: 100 Gb/s, latency: 5 us}, more_nodes: "
          "[{nodes: 2, devices_per_node: 2, device: p100, nic: {per: node, bandwidth: 10 GB/s, latency: 5 us}}]}",
          "c.yaml"),
      "c");
  const ClusterResources r{c};
  CHECK(r.instance(Resource::Nic, RankId{1}) == 1);
  CHECK(r.instance(Resource::Nic, RankId{2}) == 7);
  CHECK(r.instance(Resource::Nic, RankId{3}) == 7);
  CHECK(r.instance(Resource::Nic, RankId{5}) == 8);
  CHECK(r.count(Resource::Nic) == 9);
}

TEST_CASE("a kind of nodes without a card cannot stand beside others", "[machine][error]") {
  const std::string text = "{device: v100, nic: {bandwidth: 1 GB/s, latency: 5 us}, more_nodes: [{device: p100}]}";
  CHECK_THAT(user_error([&] { read_cluster(parse_yaml(text, "c.yaml"), "c"); }),
             Catch::StartsWith("c.yaml:1:70: 2 nodes have no network between them\n") &&
                 Catch::EndsWith("hint: add `nic: {bandwidth: 400 Gb/s, latency: 5 us}`, or use 1 node"));
}
