// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/search/layer_plan.hpp"

namespace orrery {

inline constexpr double kGalvatronContext = 1024;     // MiB of each rank that contexts take
inline constexpr double kGalvatronMiB = 1024 * 1024;  // bytes

/// How the ranks of a stage share a layer: `tp` parts of its matrices and `dp` replicas, in `pp` stages.
struct GalvatronWay {
  int pp = 1, tp = 1, dp = 1;
  bool consecutive = false;  // of parts of matrices and replicas, the parts lie on neighbours
  bool sharded = false;      // replicas share parameters, gradients and moments, as ZeRO-3 does
  bool again = false;        // the backward pass makes what the layer holds again from what went into it

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
  double input = 0;                     // MiB per sample: all that is held where the rest is made again

  bool operator==(const GalvatronLayer&) const = default;
};

/// What a ring takes for each MiB that it moves: of so many stages (0: of any), of so many ranks, neighbours or not.
struct MeasuredRing {
  int pp, ranks;
  bool consecutive;
  double ms;
};

/// What its cost model takes for granted.
struct GalvatronRules {
  double beside = 1.3;              // how many times as slow gradients and products are beside each other
  double more_time = 1.1;           // of all of it
  double bytes = sizeof(float);     // of a value that is sent
  double again = 1;                 // passes forward that a backward pass makes more of where `again`
  double after_sharded = 1e-4;      // s, so that sharded layers stand behind others of their kind
  double before_again = 0;          // s, so that layers that are made again stand before others of their kind
  bool is_last_stage_alone = true;  // gradients of other stages are summed while it waits
};

struct GalvatronModel {
  std::vector<GalvatronLayer> layers;
  double other_states = 0, other_activations = 0;  // MiB, and MiB per sample: embedding and head
  double overhead = 0;                             // ms of each layer that has replicas
  double (*microbatches)(double samples, const GalvatronWay& way) = nullptr;  // of a replica; may be a fraction
  std::span<const MeasuredRing> rings;
  GalvatronRules rules = {};
};

struct GalvatronPlan {
  double seconds = 0;
  std::int64_t batch = 0;
  std::vector<std::int64_t> stages;  // layers of each
  std::vector<GalvatronWay> ways;    // per layer

  double samples_per_second() const { return double(batch) / seconds; }
};

/// Milliseconds of one layer with so many samples of a replica: of computing with the sums that it waits for, of what
/// sums of gradients add to it, and of gathering what is shared. Notation as of `galvatron_cost`.
struct GalvatronTimes {
  double computing = 0, gradients = 0, gathering = 0;
};
GalvatronTimes galvatron_times(const GalvatronModel& model, const GalvatronLayer& layer, const GalvatronWay& way,
                               double samples);
/// Seconds between a layer of one way and one of another.
double galvatron_change(const GalvatronModel& model, const GalvatronWay& from, const GalvatronWay& to,
                        std::int64_t batch);
/// MiB that a layer holds of one sample.
double galvatron_activations(const GalvatronLayer& layer, const GalvatronWay& way);

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

/// What its planner asks of a cost model: for ways with one number of stages, and one batch.
class GalvatronCosts {
 public:
  GalvatronCosts(std::vector<GalvatronWay> ways, std::int64_t batch) : ways_{std::move(ways)}, batch_{batch} {}
  virtual ~GalvatronCosts() = default;

  const std::vector<GalvatronWay>& ways() const { return ways_; }
  std::int64_t batch() const { return batch_; }
  /// Layers of each stage.
  virtual std::vector<std::int64_t> stages() const = 0;
  /// Whether layers and room of a stage are those of the one before it.
  virtual bool is_as_before(std::size_t stage) const = 0;
  virtual LayerCost layer(std::size_t l, const GalvatronWay& way, std::size_t stage) const = 0;  // bytes: in MiB
  virtual double change(const GalvatronWay& from, const GalvatronWay& to) const = 0;
  virtual double other_mib(std::size_t stage) const = 0;  // beside layers
  /// Of a step; `of_layers`: the sum of what layers take.
  virtual double seconds(const GalvatronPlan& plan, double of_layers) const = 0;

 private:
  std::vector<GalvatronWay> ways_;
  std::int64_t batch_;
};
using GalvatronCostsOf = std::function<std::unique_ptr<GalvatronCosts>(std::vector<GalvatronWay>, std::int64_t batch)>;

/// Of the first version of its code, as `galvatron_cost` says. Layers that are not all equal are dealt out to stages
/// from the last one on, by what they take at least. The model must outlive it.
GalvatronCostsOf galvatron_costs(const GalvatronModel& model);

/// The fastest ways of all layers within the memory; nothing where none fit.
std::optional<GalvatronPlan> plan_galvatron(const GalvatronCostsOf& costs, std::span<const GalvatronWay> ways,
                                            const GalvatronBudget& budget, std::int64_t batch);

/// Batches that are tried, up to the first that nothing has room for.
struct GalvatronBatches {
  std::int64_t step = 8, most = std::numeric_limits<std::int64_t>::max();
};
/// The batch with the most samples per second; of equally good ones the smallest.
std::optional<GalvatronPlan> search_galvatron(const GalvatronCostsOf& costs, std::span<const GalvatronWay> ways,
                                              const GalvatronBudget& budget, const GalvatronBatches& batches = {});

}  // namespace orrery
