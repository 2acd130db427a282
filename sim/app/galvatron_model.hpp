// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/search/layer_plan.hpp"

namespace orrery {

/// How the ranks of a stage share a layer: `tp` parts of its matrices and `dp` replicas, in `pp` stages.
struct GalvatronWay {
  int pp = 1, tp = 1, dp = 1;
  bool consecutive = false;  // of parts of matrices and replicas, the parts lie on neighbours
  bool sharded = false;      // replicas share parameters, gradients and moments, as ZeRO-3 does

  int ranks() const { return tp * dp; }
  bool operator==(const GalvatronWay&) const = default;
};

/// All ways for so many ranks: powers of two, and of what replicas hold either all or a share.
std::vector<GalvatronWay> galvatron_ways(int ranks);

/// A layer as Galvatron profiles it.
struct GalvatronLayer {
  double parameters = 0;                // MiB
  std::array<double, 4> activations{};  // MiB per sample, of 1, 2, 4 and 8 parts of its matrices
  double forward = 0;                   // ms per sample
  double elements = 0;                  // of what goes from layer to layer, per sample
  bool is_decoder = false;              // with attention to an encoder: 6 sums instead of 4

  bool operator==(const GalvatronLayer&) const = default;
};

/// What a ring takes for each MiB that it moves: of so many stages, of so many ranks, neighbours or not.
struct MeasuredRing {
  int pp, ranks;
  bool consecutive;
  double ms;
};

struct GalvatronModel {
  std::vector<GalvatronLayer> layers;
  double other_states = 0, other_activations = 0;  // MiB, and MiB per sample: embedding and head
  double overhead = 0;                             // ms of each layer that has replicas
  double (*microbatches)(double samples, const GalvatronWay& way) = nullptr;  // of a replica; may be a fraction
  std::span<const MeasuredRing> rings;
};

struct GalvatronPlan {
  double seconds = 0;
  std::int64_t batch = 0;
  std::vector<std::int64_t> stages;  // layers of each
  std::vector<GalvatronWay> ways;    // per layer

  double samples_per_second() const { return double(batch) / seconds; }
};

/// What one layer adds to the time of a step, and to the memory of a rank (in MiB), by the cost model of Galvatron
/// (arXiv 2211.13878; constants of its authors' code). With b = batch/dp samples, forward F = t·b/tp, backward B = 2F,
/// D = 2(dp − 1)/dp · P/tp of gradients and T = 2(tp − 1)/tp · 4b·elements·k of activations to sum (k: 4, of a
/// decoder 6), each MiB at the speed of a ring of this group:
///   F + T + gradients beside the part of B that no sum waits for, both 1.3 times as slow until one ends, + the rest
///   of m microbatches in stages: (pp + m − 1)/(pp·m) of the computing, and all that communication adds to it
///   sharded: half of D once more; all of it times 1.1
///   memory: 4P/tp, (1/dp + 0.025) of it where sharded, and the activations of b samples
/// Leaves out what goes from stage to stage.
LayerCost galvatron_cost(const GalvatronModel& model, const GalvatronLayer& layer, const GalvatronWay& way,
                         std::int64_t batch);

/// The memory of each rank in MiB, and of how many whole ones what a layer takes is counted.
struct GalvatronBudget {
  std::int64_t mib = 0, quantum = 1;
};

/// The fastest ways of all layers within the memory; nothing where none fit. Layers that are not all equal are dealt
/// out to stages from the last one on, by what they take at least.
std::optional<GalvatronPlan> plan_galvatron(const GalvatronModel& model, std::span<const GalvatronWay> ways,
                                            const GalvatronBudget& budget, std::int64_t batch);

/// The batch, in steps of 8, with the most samples per second; of equally good ones the smallest.
std::optional<GalvatronPlan> search_galvatron(const GalvatronModel& model, std::span<const GalvatronWay> ways,
                                              const GalvatronBudget& budget);

}  // namespace orrery
