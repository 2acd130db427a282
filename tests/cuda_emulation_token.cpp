// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/scatter.hpp"
#include "kernels/cuda/tokens.hpp"
#include "kernels/cuda/update.hpp"
#include "tests/cuda_emulation.hpp"

namespace orrery::testing {

using namespace kernels::cuda;

void add_token_runners(GridRunners& runners) {
  add_runners(UpdateKernels{}, runners);
  add_runners(TokenKernels<float>{}, runners);
  add_runners(TokenKernels<bf16>{}, runners);
  add_runners(TokenKernels<f16>{}, runners);
  add_runners(IndexKernels{}, runners);
  add_runners(SortKernels{}, runners);
  add_runners(ScatterKernels<float>{}, runners);
  add_runners(ScatterKernels<bf16>{}, runners);
  add_runners(ScatterKernels<f16>{}, runners);
}

}  // namespace orrery::testing
