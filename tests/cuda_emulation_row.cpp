// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/norms.hpp"
#include "kernels/cuda/rows.hpp"
#include "tests/cuda_emulation.hpp"

namespace orrery::testing {

using namespace kernels::cuda;

void add_row_runners(GridRunners& runners) {
  add_runners(NormKernels<float>{}, runners);
  add_runners(RowKernels<float>{}, runners);
  add_runners(NormKernels<bf16>{}, runners);
  add_runners(RowKernels<bf16>{}, runners);
  add_runners(NormKernels<f16>{}, runners);
  add_runners(RowKernels<f16>{}, runners);
  add_runners(ColumnKernels<float>{}, runners);
  add_runners(ColumnKernels<bf16>{}, runners);
  add_runners(ColumnKernels<f16>{}, runners);
  add_runners(TotalKernels{}, runners);
}

}  // namespace orrery::testing
