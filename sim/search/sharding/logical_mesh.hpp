// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "sim/machine/cost.hpp"
#include "sim/search/sharding/spec.hpp"

namespace orrery {

/// The time of a message: alpha + beta·bytes.
struct AlphaBeta {
  double alpha = 0;  // s
  double beta = 0;   // s/B
};

/// What all-reduces between each two devices tell; the diagonal is not looked at.
using DevicePairs = std::vector<std::vector<AlphaBeta>>;

/// Measured as Colossal-Auto does (arXiv 2302.02599), by a cost model in place of a cluster: alpha is the median time
/// of an all-reduce of 4 to 64 bytes, beta the inverse of the rate of one of 1 GiB.
DevicePairs device_pairs(const CostModel& cost, std::size_t devices);

/// Devices in rows and columns. Neighbours of a row, which differ on axis 1, are joined by the fast links.
struct LogicalMesh {
  std::vector<std::vector<std::size_t>> rows;

  MeshSizes sizes() const;
  /// Devices that meet over some axes with the first one.
  std::vector<RankId> group(MeshAxes axes) const;
  /// Whether devices come in the order of their numbers, row after row, as ranks do.
  bool is_in_order() const;
};

/// Pairs whose beta differs by less than a tenth belong together; of the fastest such group that reaches all devices
/// the connected components are the rows. Where these are not several of equal size, of more than one device, the mesh
/// is as square as the number of devices allows, in their order.
LogicalMesh logical_mesh(const DevicePairs& pairs);

/// Of one axis of a mesh: alpha of an all-reduce over it of 64 bytes, and the beta with which alpha + 2·beta·(n −
/// 1)/n·V is the time of one of 1 GiB. 0 where the axis has one rank.
AlphaBeta axis_cost(const CostModel& cost, const LogicalMesh& mesh, MeshAxes axis);

/// What a collective over one axis costs in the published form, of V bytes of a rank over N ranks:
///   all-gather      alpha + beta·(N − 1)/N·V + 0.1        all-reduce  alpha + 2·beta·(N − 1)/N·V + 0.01
///   reduce-scatter  alpha + beta·(N − 1)/N·V + 0.001      all-to-all  alpha + beta·(N − 1)/N²·V·N/2 + 0.001
/// The constants break ties of its solver, whose beta is scaled to multiply-adds; a shard costs 100 there.
double published_cost(CollectiveKind kind, std::int64_t ranks, const AlphaBeta& axis, double bytes);
StepCost published_steps(const MeshSizes& mesh, const AlphaBeta& first, const AlphaBeta& second);

}  // namespace orrery
