// SPDX-License-Identifier: Apache-2.0
// `orrery search --planner colossal-auto`: sharding of ops and recomputation of blocks, planned together.
#pragma once

#include <array>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "sim/app/training_request.hpp"
#include "sim/model/model.hpp"
#include "sim/search/sharding/logical_mesh.hpp"
#include "sim/search/sharding/lowered_block.hpp"

namespace orrery {

/// A sharding of all blocks with the recomputation that it needs, predicted.
struct ShardedTrial {
  ShardedWays ways;
  std::string from;       // "program, 1.3 x memory", or "uniform"
  std::string strategy;   // an entry of `strategy` in a scenario
  std::string recompute;  // a value of `recompute`, with the keys behind it
  std::string segments;   // what runs again, for people
  double over_timed = 1;  // seconds of all passes, over those of Rotor's schedule for the seconds of blocks
  TrainingTrial trial;
};

struct ShardingSearch {
  LogicalMesh mesh;
  std::array<AlphaBeta, 2> axes;
  LoweredBlock block;
  std::vector<ShardedTrial> trials;  // best first
  std::int64_t programs = 0;         // shardings that the integer program came to
};

/// What Colossal-Auto does (arXiv 2302.02599): a logical mesh of the cluster, ways of the ops of a block by an integer
/// program for budgets that grow by factors of 1.3, for each of them Rotor's schedule of the blocks in what is left of
/// a device, and the fastest of all. The uniform ways of the mesh (replicas, Megatron's stripes, both) go through the
/// second stage, too, as the program's costs are sums and predictions are not. One microbatch. Throws UserError for
/// models whose blocks are not alike, and for one device.
ShardingSearch search_shardings(const Reproducer& reproducer, const TrainingRequest& request, const Model& model,
                                const std::function<void(std::string_view, double)>& progress);

/// For people: the mesh, ops of a block in the ways of the best plan, and the best `rows` plans.
std::string to_text(const ShardingSearch& found, std::size_t rows);
nlohmann::json to_json(const ShardingSearch& found);

}  // namespace orrery
