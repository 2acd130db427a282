// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/machine/cost.hpp"
#include "sim/model/model.hpp"
#include "sim/search/sharding/spec.hpp"
#include "sim/search/sharding/two_stage.hpp"
#include "sim/strategy/workload.hpp"

namespace orrery {

/// A way in which half of a block lies on a logical mesh and which the strategy `parallel` lowers: each axis splits
/// rows (replicas) or matrices in stripes, into a half by columns and out of it by rows. With `scatters` what comes out
/// is reduce-scattered, so that rows between ops lie over all axes, and goes in by an all-gather.
struct LoweredWay {
  MeshAxes rows = kWhole;
  MeshAxes matrices = kWhole;
  bool scatters = false;

  MeshAxes rows_between() const { return scatters ? static_cast<MeshAxes>(rows | matrices) : rows; }
  bool operator==(const LoweredWay&) const = default;
};

/// Those of a mesh: all assignments of its axes, and the scattering ones whose rows stay in the order of the ranks. Of
/// the 14 published ways of a product those are left out that leave an axis idle or cut a sum and columns at once.
std::vector<LoweredWay> lowered_ways(const MeshSizes& mesh);

/// What a plan does: what lies outside of blocks, attention with the norm before it, feed-forward layers with theirs.
struct ShardedWays {
  LoweredWay outside, attention, feed_forward;
  bool operator==(const ShardedWays&) const = default;
};

/// Whether halves of a block get entries of their own where they need none: parameters of each then lie apart.
enum class HalfBlocks : std::uint8_t { Together, Apart };

/// The options of the strategy `parallel` for so many blocks: "mesh: dp2 tp4, layers: [{…}]".
std::string sharded_options(const ShardedWays& ways, const MeshSizes& mesh, std::int64_t blocks,
                            HalfBlocks halves = HalfBlocks::Together);

/// The ops of a block of a transformer with what each way costs, read off plans of three blocks that are lowered in
/// each pair of ways: a cost model's seconds of each op of the second block with its gradients, conversions between
/// halves and blocks, what of sums of gradients the backward pass does not hide, updates; bytes of parameters with
/// gradients and states, and of what waits for the backward pass. Ways that cannot follow each other cost infinitely
/// much.
struct LoweredBlock {
  std::vector<LoweredWay> ways;
  ShardedStack stack;                // five ops of attention, five of the feed-forward layer, what lies outside
  std::vector<std::size_t> leaders;  // of followers: norms, cores, activations and sums lie as their products do

  ShardedWays ways_of(const std::vector<std::size_t>& of_node) const;
  /// The reverse: what each node chooses in ways that are among `ways`.
  std::vector<std::size_t> nodes_of(const ShardedWays& of) const;
  /// Whether all ops can lie in this way.
  bool is_open(std::size_t way) const;
};

struct BlockQuestion {
  const Model& model;  // equal blocks of one stack
  const TrainOptions& train;
  const CostModel& cost;
  MeshSizes mesh;
};
/// Throws UserError where no way can be lowered, with the reason of the first.
LoweredBlock lowered_block(const BlockQuestion& question);

/// Seconds of an op of a class on hardware that runs nothing else, as OpWork of a chain.
double op_seconds(const CostModel& cost, const Plan& plan, const Op& op, const Bindings& bindings);

}  // namespace orrery
