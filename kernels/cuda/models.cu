// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/recommendation.hpp"
#include "kernels/cuda/shapes.hpp"
#include "kernels/cuda/speculation.hpp"
#include "kernels/cuda/thread.cuh"

namespace orrery::kernels::cuda {

void add_model_entries(Entries& entries) {
  add_entries(SpeculationKernels<float>{}, entries);
  add_entries(SpeculationKernels<bf16>{}, entries);
  add_entries(SpeculationKernels<f16>{}, entries);
  add_entries(ShapeKernels<float>{}, entries);
  add_entries(ShapeKernels<bf16>{}, entries);
  add_entries(ShapeKernels<f16>{}, entries);
  add_entries(RecommendationKernels<float>{}, entries);
  add_entries(RecommendationKernels<bf16>{}, entries);
  add_entries(RecommendationKernels<f16>{}, entries);
  add_entries(FactorKernels{}, entries);
}

}  // namespace orrery::kernels::cuda
