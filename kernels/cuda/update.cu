// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/update.hpp"

#include "kernels/cuda/thread.cuh"
#include "kernels/cuda/scatter.hpp"
#include "kernels/cuda/tokens.hpp"

namespace orrery::kernels::cuda {

void add_update_entries(Entries& entries) {
  add_entries(UpdateKernels{}, entries);
  add_entries(TokenKernels<float>{}, entries);
  add_entries(TokenKernels<bf16>{}, entries);
  add_entries(TokenKernels<f16>{}, entries);
  add_entries(IndexKernels{}, entries);
  add_entries(SortKernels{}, entries);
  add_entries(ScatterKernels<float>{}, entries);
  add_entries(ScatterKernels<bf16>{}, entries);
  add_entries(ScatterKernels<f16>{}, entries);
}

}  // namespace orrery::kernels::cuda
