// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_rows.hpp"
#include "kernels/cuda/attention_tile_slopes.hpp"
#include "tests/cuda_hopper_emulation.hpp"

namespace orrery::testing {

using namespace kernels::cuda;

void add_attention_runners(GridRunners& runners) {
  add_runners(AttentionKernels<float>{}, runners);
  add_runners(AttentionRowsKernels<float>{}, runners);
  add_runners(WideAttentionRowsKernels{}, runners);
  add_runners(AttentionSlopeKernels<float>{}, runners);
  add_runners(AttentionKernels<bf16>{}, runners);
  add_runners(AttentionRowsKernels<bf16>{}, runners);
  add_runners(AttentionSlopeKernels<bf16>{}, runners);
  add_runners(AttentionKernels<f16>{}, runners);
  add_runners(AttentionRowsKernels<f16>{}, runners);
  add_runners(AttentionSlopeKernels<f16>{}, runners);
  for_each_attention_tile_list([&](auto list) { add_hopper_runners(list, runners); });
}

}  // namespace orrery::testing
