// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <map>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/collective.hpp"
#include "hw_models/parameters.hpp"
#include "hw_models/software_profile.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

const Hop kHop{2.0_us, 100.0_GBps};

double us(Seconds t) { return t.base() * 1e6; }

/// Two nodes of four devices that share a card of 10 GB/s, inside 100 GB/s; start and efficiency of a link are the
/// device's.
Cluster two_nodes() {
  Cluster c;
  c.nodes = 2, c.devices_per_node = 4, c.device = "h100_sxm", c.name = "two";
  c.device_link = Link{"inside", 100.0_GBps, 2.0_us};
  c.host_link = Link{"host", 63.0_GBps, 2.0_us};
  c.nic = Nic{"card", NicPlacement::PerNode, 10.0_GBps, 5.0_us};
  return c;
}

}  // namespace

TEST_CASE("a ring all-reduce of n ranks takes 2(n-1) steps of one n-th of the message", "[hw_models]") {
  // 8 ranks, 80 MB: 14 steps of 2 us + 10 MB / (100 GB/s) = 100 us each: 1428 us.
  CHECK(us(ring_all_reduce(80.0_MB, 8, kHop)) == Approx(1428.0));
}

TEST_CASE("a ring all-gather is half of a ring all-reduce", "[hw_models]") {
  CHECK(us(ring_all_gather(80.0_MB, 8, kHop)) == Approx(714.0));
  CHECK(ring_reduce_scatter(80.0_MB, 8, kHop) == ring_all_gather(80.0_MB, 8, kHop));
}

TEST_CASE("one rank needs no time for any collective", "[hw_models]") {
  for (int k = 0; k <= static_cast<int>(CollectiveKind::Barrier); ++k)
    CHECK(flat_collective(static_cast<CollectiveKind>(k), 1.0_GB, 1, kHop) == Seconds{0});
}

TEST_CASE("a small all-reduce goes through a tree, a large one through a ring", "[hw_models]") {
  // 1 KB over 64: tree 2·6·2 us = 24 us (+ 0.02), ring 126·2 us = 252 us.
  CHECK(flat_collective(CollectiveKind::AllReduce, 1.0_KB, 64, kHop) == tree_all_reduce(1.0_KB, 64, kHop));
  // 1 GB over 4: ring 6·(2 us + 2.5 ms) = 15.012 ms, tree 2·2·2 us + 20 ms = 20.008 ms.
  CHECK(flat_collective(CollectiveKind::AllReduce, 1.0_GB, 4, kHop) == ring_all_reduce(1.0_GB, 4, kHop));
}

TEST_CASE("an all-reduce over two nodes sends one g-th of the message between them", "[hw_models]") {
  // g = 4 on N = 2: inside twice 3·(2 us + 40 MB/(4·100 GB/s) = 100 us) = 306 us each; between: ring of 2 over 10 MB at
  // 10 GB/s: 2·(5 us + 500 us) = 1010 us (tree: 2·5 us + 2000 us). In all 1622 us.
  const TwoLevels t{4, 2, kHop, {5.0_us, 10.0_GBps}, {}};
  CHECK(us(two_level_collective(CollectiveKind::AllReduce, 40.0_MB, t)) == Approx(1622.0));
}

TEST_CASE("on one node two levels are one", "[hw_models]") {
  const TwoLevels t{8, 1, kHop, {}, {}};
  CHECK(two_level_collective(CollectiveKind::AllReduce, 80.0_MB, t) ==
        flat_collective(CollectiveKind::AllReduce, 80.0_MB, 8, kHop));
}

TEST_CASE("an all-to-all over nodes is limited by what leaves a node", "[hw_models]") {
  // g = 2, N = 2, 40 MB: inside (1/4)·40 MB at 100 GB/s = 100 us; leaving (1/2)·40 MB at 10 GB/s = 2000 us; latencies 2
  // us + 2·5 us.
  const TwoLevels t{2, 2, kHop, {5.0_us, 10.0_GBps}, {}};
  CHECK(us(two_level_collective(CollectiveKind::AllToAll, 40.0_MB, t)) == Approx(2012.0));
}

TEST_CASE("an engine's own all-reduce is used in a node where it is faster", "[hw_models]") {
  const Cluster c = load_cluster(ORRERY_SOURCE_DIR "/scenarios/clusters/dgx_h100.yaml");
  ClusterCostModel model{c, find_device("h100_sxm", {parameters_folder()})};
  std::vector<RankId> ranks;
  for (std::size_t r = 0; r < 8; ++r) ranks.emplace_back(r);
  const auto time = [&](Bytes bytes) {
    return model.collective({.kind = CollectiveKind::AllReduce, .bytes = bytes}, ranks).duration.base();
  };
  const double small = time(64.0_KiB), large = time(256.0_MiB);
  model.choose_kernels({.own_all_reduce = true});
  CHECK(time(64.0_KiB) < 0.6 * small);
  CHECK(time(256.0_MiB) <= large);
  model.reset_parameters();
  CHECK(time(64.0_KiB) == small);
}

TEST_CASE("a shift takes its slowest hop, and the messages that leave a node share its card", "[hw_models]") {
  const ClusterCostModel model{two_nodes(), find_device("h100_sxm", {parameters_folder()})};
  const CommunicationParameters& p = model.device().communication();
  std::vector<RankId> ranks;
  for (std::size_t r = 0; r < 8; ++r) ranks.emplace_back(r);
  const auto time = [&](std::int32_t places, std::size_t n) {
    const Collective work{.kind = CollectiveKind::Shift, .root = places, .bytes = 10.0_MB};
    const OpCost c = model.collective(work, std::span{ranks}.first(n));
    return us(c.duration) - us(p.overhead);
  };
  // Inside 2 us + 10 MB / 100 GB/s = 100 us; out of the node 5 us + k · 10 MB / 10 GB/s = k · 1000 us.
  CHECK(time(1, 4) == Approx(2 + 100 / p.efficiency));
  CHECK(time(1, 8) == Approx(5 + 1000 / p.efficiency));   // only 3 → 4 and 7 → 0 leave
  CHECK(time(-2, 8) == Approx(5 + 2000 / p.efficiency));  // two of each node
  CHECK(time(4, 8) == Approx(5 + 4000 / p.efficiency));   // all
  CHECK(model.collective({.kind = CollectiveKind::Shift, .root = 8, .bytes = 10.0_MB}, ranks).duration == Seconds{0});
}

TEST_CASE("ranks on two kinds of nodes meet at the pace of the slower", "[hw_models]") {
  Cluster c = two_nodes();
  c.nodes = 1;
  NodeGroup slow = c;
  slow.device = "v100";
  slow.nic->bandwidth = 5.0_GBps;
  c.more_nodes = {slow};
  std::vector<std::unique_ptr<DeviceModel>> devices;
  for (const char* name : {"h100_sxm", "v100"}) devices.push_back(find_device(name, {parameters_folder()}));
  const ClusterCostModel model{c, std::move(devices)};
  CHECK(model.device_kind(RankId{3}) == 0);
  CHECK(model.device_kind(RankId{4}) == 1);
  CHECK(model.capacity(Tier::Device, RankId{0}) > model.capacity(Tier::Device, RankId{4}));
  // A product takes the time of its rank's device; bytes between the nodes leave at 5 GB/s of the slower one's link.
  const Gemm product{.m = 4096, .n = 4096, .k = 4096, .dtype = DType::F16};
  CHECK(model.cost(product, {}, RankId{4}).duration > 3.0 * model.cost(product, {}, RankId{0}).duration);
  const double efficiency =
      std::min(model.device(RankId{0}).communication().efficiency, model.device(RankId{4}).communication().efficiency);
  const Seconds bytes =
      model.transfer(50.0_MB, RankId{0}, RankId{4}).duration - model.transfer(Bytes{0}, RankId{0}, RankId{4}).duration;
  CHECK(bytes.base() <= Approx(0.01 / efficiency));
  CHECK(bytes.base() >= Approx(0.01));
}

TEST_CASE("a collective takes a fifth of its devices from the ops beside it", "[hw_models]") {
  // 18.9 % slower on average (arXiv:2507.03114): all of the SMs and 0.19 of them together are 1.19 of what there is.
  const ClusterCostModel model{two_nodes(), find_device("h100_sxm", {parameters_folder()})};
  const std::vector<RankId> node{RankId{0}, RankId{1}, RankId{2}, RankId{3}};
  const OpCost c = model.collective({.kind = CollectiveKind::AllReduce, .bytes = 64.0_MB}, node);
  std::map<Resource, double> share;
  for (const Demand& d : c.used()) share[d.resource] = d.share;
  CHECK(share[Resource::Sm] == Approx(0.19));
  CHECK(share[Resource::Hbm] == Approx(0.19));
  CHECK(share[Resource::Link] == Approx(1.0));
}

TEST_CASE("collectives over links with measurements take the measured time", "[hw_models][fabric]") {
  Cluster c = two_nodes();
  c.devices_per_node = 8;
  c.device_link = Link{"NVLink 4", 450.0_GBps, 1.5_us, "nvlink_4"};
  const ClusterCostModel model{c, find_device("h100_sxm", {parameters_folder()})};
  std::vector<RankId> node;
  for (std::size_t r = 0; r < 8; ++r) node.push_back(RankId{r});
  const FabricModel fabric{find_fabric("nvlink_4", {fabrics_folder()})};
  for (const Bytes bytes : {1.0_KB, 1.0_MB, 1.0_GB}) {
    const Collective all_reduce{.kind = CollectiveKind::AllReduce, .bytes = bytes};
    CHECK(model.collective(all_reduce, node).duration == fabric.time({Exchange::AllReduce, bytes, 8, 1}).total());
  }
  // A chosen algorithm is no longer NCCL's choice: the closed form of that algorithm.
  c.algorithms = CollectiveChoice::all(CollectiveAlgorithm::Ring);
  const ClusterCostModel ring{c, find_device("h100_sxm", {parameters_folder()})};
  CHECK(ring.collective({.kind = CollectiveKind::AllReduce, .bytes = 1.0_KB}, node).duration.base() !=
        Approx(fabric.time({Exchange::AllReduce, 1.0_KB, 8, 1}).total().base()));
}

TEST_CASE("a link twice as fast halves what flows of a measured collective", "[hw_models][fabric]") {
  Cluster c = two_nodes();
  c.devices_per_node = 8;
  c.device_link = Link{"NVLink 4", 450.0_GBps, 1.5_us, "nvlink_4"};
  ClusterCostModel model{c, find_device("h100_sxm", {parameters_folder()})};
  std::vector<RankId> node;
  for (std::size_t r = 0; r < 8; ++r) node.push_back(RankId{r});
  const Collective all_gather{.kind = CollectiveKind::AllGather, .bytes = 1.0_GB};
  const ExchangeTime before =
      FabricModel{find_fabric("nvlink_4", {fabrics_folder()})}.time({Exchange::AllGather, 1.0_GB, 8, 1});
  model.scale_parameter("link.bandwidth", 2);
  CHECK(model.collective(all_gather, node).duration.base() == Approx((before.latency + before.flowing / 2.0).base()));
}

TEST_CASE("a program that hides exchanges over NVLink gets no more from a bus than it has", "[hw_models][collective]") {
  const auto time_by = [](NodeLayout layout, double links) {
    Cluster c;
    c.devices_per_node = 8;
    c.layout = layout;
    c.device_link = Link{"PCIe 4.0 x16", 31.5_GBps, 2.5_us, "pcie_4"};
    c.host_link = Link{"PCIe 4.0 x16", 31.5_GBps, 1.5_us};
    ClusterCostModel model{c, find_device("h100_sxm", {parameters_folder()})};
    SoftwareProfile profile;
    profile.links = links;
    profile.apply(model);
    std::vector<RankId> node;
    for (std::size_t r = 0; r < 8; ++r) node.push_back(RankId{r});
    return model.collective({.kind = CollectiveKind::AllGather, .bytes = 1.0_GB}, node).duration.base();
  };
  CHECK(time_by(NodeLayout::Pcie, 2) == time_by(NodeLayout::Pcie, 1));
  CHECK(time_by(NodeLayout::Pcie, 0.5) > 1.9 * time_by(NodeLayout::Pcie, 1));
  CHECK(time_by(NodeLayout::Switch, 2) < 0.6 * time_by(NodeLayout::Switch, 1));
}
