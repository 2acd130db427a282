// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/app/reproduce/galvatron_model.hpp"

namespace orrery {

/// What embedding and head take: MiB, and MiB per sample.
struct GalvatronEnds {
  double states = 0, activations = 0;
};

/// What the cost model of Galvatron-BMW is asked with.
struct BmwModel {
  GalvatronModel layers;                       // with embedding and head on one stage
  GalvatronEnds first, last;                   // on the first and the last of several
  std::array<double, 4> hops{};                // ms for each MiB that goes between 1, 2, 4 and 8 stages
  std::int64_t samples = 4, microbatches = 8;  // of a microbatch at least, and at most
};

/// Samples of each microbatch of a stage that gets so many: m = min(8, ⌈samples/4⌉) of them, as `torch.chunk` cuts.
std::vector<std::int64_t> bmw_microbatches(const BmwModel& model, int pp, std::int64_t samples);

/// The cost model of Galvatron-BMW (arXiv 2307.02031), as version 2.0 of its authors' code has it. Of a layer as
/// `galvatron_times`, with values of two bytes; backward passes of layers that are made again take `rules.again` passes
/// forward and half of their sums more. Hops between stages add to each layer its part. With c of a stage and c'
/// without sums of gradients, for m microbatches in p stages
///   max c'·(m − 1 + p) + max(0, max over i of (c_i − c'_0 − … − c'_i))
/// Memory: states 4P/tp times 1/d + 0.003 where d replicas share all, 7/8 of that + 1/8 where they share all but
/// weights; with several microbatches 7/8 of it + 1/8, and 6/8 + 2/8. Stage i holds activations of min(p − i, m)
/// microbatches, of layers that are made again their input, and beside them one such layer. Leaves out passes of
/// embedding and head. The model must outlive it.
GalvatronCostsOf bmw_costs(const BmwModel& model);

/// The ways, each also with layers that are made again.
std::vector<GalvatronWay> with_layers_again(std::vector<GalvatronWay> ways);

}  // namespace orrery
