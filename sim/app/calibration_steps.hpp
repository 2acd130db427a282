// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/bench.hpp"
#include "sim/app/scenario.hpp"
#include "sim/base/random.hpp"

namespace orrery {

class Wiring;

/// Small: a step of a few milliseconds to a tenth of a second. Wide: of a training hidden sizes of 448 and more, up to
/// a quarter of a second, with tensors of several MB; of a generation keys and values of 12 to 120 MB. Deep, of a
/// training: 8 to 16 million weights in 3 layers and more, for few tokens; Long: 80 to 240 MB kept for the backward
/// pass. Of a generation: 16 MB and more of keys and values in each layer.
enum class StepSize : std::uint8_t { Small, Wide, Deep, Long };

/// A language model of random sizes and what is done with it.
Scenario draw_training(Random& random, StepSize size, const Locations& locations);
Scenario draw_generation(Random& random, StepSize size, const Locations& locations);
/// A generation whose steps verify a tree of 4 to 63 drafted tokens of each sequence: products of some rows and
/// attention of some queries over a cache, which neither trainings nor plain decoding have.
Scenario draw_verification(Random& random, const Locations& locations);

/// The step of a scenario that calibration measures, with its inputs: the first of a training, the first decode step or
/// verification of a generation.
Bench step_bench(const Scenario& scenario, const Wiring& wiring);

struct StepCounts {
  std::int64_t trainings = 0, wide_trainings = 0, deep_trainings = 0, long_trainings = 0;
  std::int64_t generations = 0, wide_generations = 0, long_generations = 0, verifications = 0;
};
/// Whole steps for a calibration, lowered as for a user, and other ones to check it by.
StepCounts calibration_counts(bool quick);
std::vector<Scenario> draw_scenarios(const StepCounts& counts, std::uint64_t seed, const Locations& locations);
std::vector<Bench> draw_steps(const StepCounts& counts, std::uint64_t seed, const Wiring& wiring);

}  // namespace orrery
