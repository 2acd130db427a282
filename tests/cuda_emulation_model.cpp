// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/recommendation.hpp"
#include "kernels/cuda/shapes.hpp"
#include "kernels/cuda/speculation.hpp"
#include "tests/cuda_emulation.hpp"

namespace orrery::testing {

using namespace kernels::cuda;

void add_model_runners(GridRunners& runners) {
  add_runners(SpeculationKernels<float>{}, runners);
  add_runners(SpeculationKernels<bf16>{}, runners);
  add_runners(SpeculationKernels<f16>{}, runners);
  add_runners(ShapeKernels<float>{}, runners);
  add_runners(ShapeKernels<bf16>{}, runners);
  add_runners(ShapeKernels<f16>{}, runners);
  add_runners(RecommendationKernels<float>{}, runners);
  add_runners(RecommendationKernels<bf16>{}, runners);
  add_runners(RecommendationKernels<f16>{}, runners);
  add_runners(FactorKernels{}, runners);
}

}  // namespace orrery::testing
