// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/norms.hpp"
#include "kernels/cuda/rows.hpp"

#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/thread.cuh"

namespace orrery::kernels::cuda {

void add_row_entries(Entries& entries) {
  add_entries(NormKernels<float>{}, entries);
  add_entries(RowKernels<float>{}, entries);
  add_entries(NormKernels<bf16>{}, entries);
  add_entries(RowKernels<bf16>{}, entries);
  add_entries(NormKernels<f16>{}, entries);
  add_entries(RowKernels<f16>{}, entries);
  add_entries(ColumnKernels<float>{}, entries);
  add_entries(ColumnKernels<bf16>{}, entries);
  add_entries(ColumnKernels<f16>{}, entries);
  add_entries(TotalKernels{}, entries);
}

}  // namespace orrery::kernels::cuda
