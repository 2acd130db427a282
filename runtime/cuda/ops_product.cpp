// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/eight_bit.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"
#include "runtime/cuda/workspaces.hpp"

namespace orrery {

static void run(const Gemm& g, const GpuContext<void>& c) {
  const int out = g.bias ? 3 : 2;
  const MatrixStrides a = g.transpose_a ? c.matrix(0, g.batch, g.k, g.m) : c.matrix(0, g.batch, g.m, g.k);
  const MatrixStrides b = g.transpose_b ? c.matrix(1, g.batch, g.n, g.k) : c.matrix(1, g.batch, g.k, g.n);
  const MatrixStrides y = c.matrix(out, g.batch, g.m, g.n);
  const auto matrix = [&](int i, const MatrixStrides& s) {
    return GpuProduct::Matrix{c.call().place(c.operand(i)), c.operand(i).dtype, s.row, s.batch};
  };
  c.queue().driver.multiply({.m = g.m,
                             .n = g.n,
                             .k = g.k,
                             .count = g.batch,
                             .transpose_a = g.transpose_a,
                             .transpose_b = g.transpose_b,
                             .accumulate = g.accumulate,
                             .fast_f32 = c.queue().fast_f32,
                             .alpha = g.alpha,
                             .a = matrix(0, a),
                             .b = matrix(1, b),
                             .c = matrix(out, y),
                             .bias = g.bias ? c.call().place(c.operand(2)) : 0,
                             .workspace = reinterpret_cast<std::uintptr_t>(c.workspace()),
                             .workspace_bytes = kProductWorkspace},
                            c.queue().stream);
}

/// One operand, cast into scratch with k running fastest: `rows` of them, whose numbers lie `row` and `col` apart. N is
/// the type of 8 bits.
template <class N, class T>
static GpuProduct::Matrix cast(const GpuContext<T>& c, const gpu::StridedMatrices<T>& in, std::int64_t length,
                               std::int64_t at, std::int64_t parts_at, std::int64_t scale_at) {
  auto* parts = c.template scratch<float>(static_cast<std::size_t>(parts_at));
  auto* scale = c.template scratch<float>(static_cast<std::size_t>(scale_at));
  auto* out = c.template scratch<std::uint32_t>(static_cast<std::size_t>(at));
  const std::int64_t numbers = in.batch * in.rows * in.cols;
  const std::int64_t blocks = std::min(gpu::kLargestBlocks, gpu::grid_for<gpu::LargestPartsKernel<T>>(numbers));
  c.launch(gpu::LargestPartsKernel<T>{in, parts}, blocks, gpu::kLargestShared);
  c.launch(gpu::EightBitScaleKernel{blocks, N::kLargest, parts, scale}, 1, gpu::kLargestShared);
  c.over(gpu::EightBitKernel<T, N>{in, length, scale, out}, in.batch * in.rows * length / 4);
  return {reinterpret_cast<std::uintptr_t>(out), std::is_same_v<N, gpu::e5m2> ? DType::F8E5M2 : DType::F8E4M3, length,
          in.rows * length, reinterpret_cast<std::uintptr_t>(scale)};
}

/// In 8 bits: both operands are cast, each with a scale of its own. cuBLASLt takes E5M2 beside E4M3, never twice.
template <class T>
static void run(const Gemm& g, const GpuContext<T>& c) {
  const int out = g.bias ? 3 : 2;
  const MatrixStrides a = g.transpose_a ? c.matrix(0, g.batch, g.k, g.m) : c.matrix(0, g.batch, g.m, g.k);
  const MatrixStrides b = g.transpose_b ? c.matrix(1, g.batch, g.n, g.k) : c.matrix(1, g.batch, g.k, g.n);
  const MatrixStrides y = c.matrix(out, g.batch, g.m, g.n);
  const EightBitScratch s = eight_bit_scratch(g);
  const gpu::StridedMatrices<T> of_a{g.batch,  g.m, g.k, a.batch, g.transpose_a ? 1 : a.row, g.transpose_a ? a.row : 1,
                                     c.data(0)};
  const gpu::StridedMatrices<T> of_b{g.batch,  g.n, g.k, b.batch, g.transpose_b ? b.row : 1, g.transpose_b ? 1 : b.row,
                                     c.data(1)};
  const auto to = [&](const gpu::StridedMatrices<T>& in, std::int64_t at, std::int64_t scale, bool gradient) {
    return gradient ? cast<gpu::e5m2>(c, in, s.row, at, s.parts, scale)
                    : cast<gpu::e4m3>(c, in, s.row, at, s.parts, scale);
  };
  const GpuProduct::Matrix cast_a = to(of_a, s.a, s.scales, g.gradient == GradientOperand::A);
  const GpuProduct::Matrix cast_b =
      to(of_b, s.b, s.scales + std::int64_t{sizeof(float)}, g.gradient == GradientOperand::B);
  c.queue().driver.multiply({.m = g.m,
                             .n = g.n,
                             .k = s.row,
                             .count = g.batch,
                             .transpose_b = true,
                             .accumulate = g.accumulate,
                             .alpha = g.alpha,
                             .a = cast_a,
                             .b = cast_b,
                             .c = {c.call().place(c.operand(out)), c.operand(out).dtype, y.row, y.batch},
                             .bias = g.bias ? c.call().place(c.operand(2)) : 0,
                             .workspace = reinterpret_cast<std::uintptr_t>(
                                 c.template scratch<std::byte>(static_cast<std::size_t>(s.product))),
                             .workspace_bytes = kProductWorkspace},
                            c.queue().stream);
}

/// Products of weights that lie in fewer bits need scales that a plan has no operands for. cuBLASLt's products in 8
/// bits have no bias of f32, and take whole 16 bytes of a row.
Kernel find_gpu_product(const Work& work) {
  const auto* g = std::get_if<Gemm>(&work);
  if (!g || g->weights != Quantised::None) return nullptr;
  const bool narrow = g->dtype == DType::BF16 || g->dtype == DType::F16;
  if (g->narrow == Narrow::FourBits) return nullptr;
  if (g->narrow == Narrow::None) return narrow || g->dtype == DType::F32 ? &enqueue<Gemm, void> : nullptr;
  if (!narrow || (g->wide && g->bias) || g->n % gpu::kEightBitRow != 0) return nullptr;
  return g->dtype == DType::BF16 ? &enqueue<Gemm, gpu::bf16> : &enqueue<Gemm, gpu::f16>;
}

}  // namespace orrery
