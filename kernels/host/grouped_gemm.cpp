// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/host/gemm.hpp"

namespace orrery::kernels {

std::size_t grouped_gemm_workspace(std::int64_t rows, std::int64_t k, std::int64_t n, std::size_t element_size) {
  return std::max({gemm_workspace({rows, n, k}, element_size), gemm_workspace({1, n, k}, element_size),
                   gemm_workspace({rows, k, n}, element_size), gemm_workspace({1, k, n}, element_size),
                   gemm_workspace({k, n, rows}, element_size)});
}

template <class T>
void grouped_gemm(const GroupedGemmArgs<T>& args) {
  const std::int64_t groups = args.groups, k = args.k, n = args.n;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = args.offsets[g], rows = args.offsets[g + 1] - first;
    gemm<T>({.dims = {rows, n, k},
             .a = args.x + first * k,
             .lda = k,
             .b = args.w + g * k * n,
             .ldb = n,
             .c = args.y + first * n,
             .ldc = n,
             .write = args.write,
             .bias = args.bias ? args.bias + g * n : nullptr,
             .workspace = args.workspace});
  }
}

template <class T>
void grouped_gemm_input_gradient(const GroupedGemmArgs<T>& args) {
  const std::int64_t groups = args.groups, k = args.k, n = args.n;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = args.offsets[g], rows = args.offsets[g + 1] - first;
    gemm<T>({.dims = {rows, k, n},
             .transpose_b = Transpose::Yes,
             .a = args.x + first * n,
             .lda = n,
             .b = args.w + g * k * n,
             .ldb = n,
             .c = args.y + first * k,
             .ldc = k,
             .write = args.write,
             .workspace = args.workspace});
  }
}

template <class T>
void grouped_gemm_weight_gradient(const GroupedGemmArgs<T>& args) {
  const std::int64_t groups = args.groups, k = args.k, n = args.n;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = args.offsets[g], rows = args.offsets[g + 1] - first;
    gemm<T>({.dims = {k, n, rows},
             .transpose_a = Transpose::Yes,
             .a = args.x + first * k,
             .lda = k,
             .b = args.w + first * n,
             .ldb = n,
             .c = args.y + g * k * n,
             .ldc = n,
             .write = args.write,
             .workspace = args.workspace});
  }
}

template void grouped_gemm<float>(const GroupedGemmArgs<float>&);
template void grouped_gemm<double>(const GroupedGemmArgs<double>&);
template void grouped_gemm_input_gradient<float>(const GroupedGemmArgs<float>&);
template void grouped_gemm_input_gradient<double>(const GroupedGemmArgs<double>&);
template void grouped_gemm_weight_gradient<float>(const GroupedGemmArgs<float>&);
template void grouped_gemm_weight_gradient<double>(const GroupedGemmArgs<double>&);

}  // namespace orrery::kernels
