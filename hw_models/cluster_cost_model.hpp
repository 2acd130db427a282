// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hw_models/collective.hpp"
#include "hw_models/device_model.hpp"
#include "hw_models/fabric_model.hpp"
#include "hw_models/node_model.hpp"
#include "sim/machine/cluster.hpp"
#include "sim/machine/contention.hpp"
#include "sim/machine/topology.hpp"
#include "sim/plan/tensor.hpp"

namespace orrery {

/// The cost model of a cluster: the laws of its devices, and closed forms over the cluster's links for all that leaves
/// a device. Collectives of ranks on several kinds of nodes go at the pace of the slowest.
class ClusterCostModel final : public CostModel {
 public:
  /// One device for each kind of node, in the order of `Cluster::group`.
  ClusterCostModel(const Cluster& cluster, std::vector<std::unique_ptr<DeviceModel>> devices);
  /// A cluster with nodes of one kind.
  ClusterCostModel(const Cluster& cluster, std::unique_ptr<DeviceModel> device);

  OpCost cost(const Work& work, const Bindings& bindings, RankId rank) const override;
  OpCost collective(const Collective& work, std::span<const RankId> ranks) const override;
  OpCost transfer(Bytes bytes, RankId from, RankId to) const override;
  LaunchCost launch(const Work& work, RankId rank) const override;
  CollectiveSetup setup(const Collective& work, std::span<const RankId> ranks) const override;
  Way way(RankId from, RankId to) const override;
  std::int64_t node_of(RankId rank) const override { return cluster_.node_of(rank); }
  std::uint32_t device_kind(RankId rank) const override {
    return static_cast<std::uint32_t>(cluster_.group_index(rank));
  }
  bool sees_reuse() const override;
  std::string extrapolation(const Work& work, const Bindings& bindings, RankId rank) const override;

  /// Makes a parameter faster or slower by a factor, for what-if; see `knobs()`. Throws UserError on unknown names.
  void scale_parameter(std::string_view name, double factor) {
    scales_.scale(name, factor);
    find_ways();
  }

  /// Makes all parameters again what they were at first.
  void reset_parameters() {
    scales_ = {};
    find_ways();
  }
  /// Which kernels a program takes where there are several.
  void choose_kernels(const KernelChoice& kernels) { scales_.choose(kernels); }
  const KernelChoice& kernels() const { return scales_.kernels(); }

  const DeviceModel& device(RankId rank = RankId{0}) const { return *devices_[cluster_.group_index(rank)]; }
  const Cluster& cluster() const { return cluster_; }
  /// "dgx_h100, h100_sxm (unfitted)": for timelines.
  std::string machine() const;
  /// The cluster with what messages reach of its links: those of a flow network.
  Cluster reached() const;
  /// Memory of the rank's own device, as much of it as plans may use; nothing where devices share that of their node.
  std::optional<Bytes> own_memory(RankId rank = RankId{0}) const;
  /// What a copy between two tiers of a rank goes through; nothing where it is a copy in one memory.
  std::optional<CopyPath> copy_path(Tier from, Tier to, RankId rank = RankId{0}) const;
  /// What a rank may use of a tier. Ranks of a node share its memory and disks; where a device is the host, its
  /// memory too.
  Bytes capacity(Tier tier, RankId rank = RankId{0}) const;

 private:
  using Groups = std::vector<std::size_t>;  // kinds of nodes, ascending, at least one

  struct Slowdowns {  // of exchanges that were asked for, while parameters stay what they are
    std::mutex mutex;
    std::map<std::array<std::uint64_t, 4>, Slowdown> known;
  };
  struct Fabrics {  // of a kind of node, where its links name them
    std::optional<FabricModel> inside, between;
  };
  void check_links(std::size_t group) const;
  double efficiency(std::size_t group, const std::optional<FabricModel>& fabric) const;
  void find_ways();
  std::optional<ExchangeTime> measured(const Collective& work, std::span<const RankId> ranks, const TwoLevels& levels,
                                       const Slowdown& slower) const;
  ExchangeTime inside_time(const ExchangeCase& c, std::size_t group, const Slowdown& slower) const;
  ExchangeTime between_time(const ExchangeCase& c, std::size_t group, const Slowdown& slower) const;
  OpCost uncertain(const ExchangeTime& time, const Groups& groups) const;
  Groups groups_of(std::span<const RankId> ranks) const;
  CommunicationParameters communication(const Groups& groups) const;
  Hop hop_inside(const Groups& groups) const;
  Hop hop_between(const Groups& groups, std::int64_t ranks_of_node) const;
  Slowdown slowdown_of(const Collective& work, std::span<const RankId> ranks, Sharing sharing) const;
  TwoLevels levels(std::span<const RankId> ranks, const Slowdown& slower) const;
  CollectiveShape shape(const Collective& work, std::span<const RankId> ranks, const TwoLevels& levels) const;
  OpCost shift(const Collective& work, std::span<const RankId> ranks, const Slowdown& links) const;
  OpCost copy(const Copy& work, const Bindings& bindings, RankId rank) const;
  OpCost uncertain(Seconds duration, const Groups& groups) const;
  double nic_share(const Groups& groups, std::int64_t per_node, double slower) const;

  Cluster cluster_;
  std::vector<std::unique_ptr<DeviceModel>> devices_;
  std::vector<Fabrics> fabrics_;
  std::optional<Topology> topology_;  // where links between the ends of a way may be slower than its ends
  std::unique_ptr<Slowdowns> slowdowns_;
  Scales scales_;
};

}  // namespace orrery
