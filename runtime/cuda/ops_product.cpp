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
                             .workspace = reinterpret_cast<std::uintptr_t>(c.scratch<std::byte>()),
                             .workspace_bytes = kProductWorkspace},
                            c.queue().stream);
}

/// A cast operand in scratch, with k running fastest.
template <class N>
static GpuProduct::Matrix in_eight_bits(const std::uint32_t* numbers, std::int64_t rows, std::int64_t length,
                                        const float* scale) {
  return {reinterpret_cast<std::uintptr_t>(numbers), std::is_same_v<N, gpu::e5m2> ? DType::F8E5M2 : DType::F8E4M3,
          length, rows * length, reinterpret_cast<std::uintptr_t>(scale)};
}

/// One operand, cast into scratch: `rows` of them, whose numbers lie `row` and `col` apart. N is the type of 8 bits.
template <class N, class T>
static GpuProduct::Matrix cast(const GpuContext<T>& c, const gpu::StridedMatrices<T>& in, std::int64_t length,
                               std::uint32_t* out, float* parts, float* scale) {
  const std::int64_t numbers = in.batch * in.rows * in.cols;
  const std::int64_t blocks = std::min(gpu::kLargestBlocks, gpu::grid_for<gpu::LargestPartsKernel<T>>(numbers));
  c.launch(gpu::LargestPartsKernel<T>{in, parts}, blocks, gpu::kLargestShared);
  c.launch(gpu::EightBitScaleKernel{blocks, N::kLargest, parts, scale}, 1, gpu::kLargestShared);
  c.over(gpu::EightBitKernel<T, N>{in, length, scale, out}, in.batch * in.rows * length / 4);
  return in_eight_bits<N>(out, in.rows, length, scale);
}

/// Operand A or B with k running fastest. One that is read cast is turned if need be, and its scale stays where it is.
template <class T>
static GpuProduct::Matrix cast_operand(const Gemm& g, const GpuContext<T>& c, const EightBitScratch& s,
                                       GradientOperand which) {
  const bool is_a = which == GradientOperand::A, crosswise = is_a ? g.transpose_a : !g.transpose_b;
  const int i = is_a ? 0 : 1;
  const std::int64_t rows = is_a ? g.m : g.n;
  const MatrixStrides at = crosswise ? c.matrix(i, g.batch, g.k, rows) : c.matrix(i, g.batch, rows, g.k);
  const auto matrices = [&](const auto* first) {
    return gpu::StridedMatrices<std::remove_cvref_t<decltype(*first)>>{
        g.batch, rows, g.k, at.batch, crosswise ? 1 : at.row, crosswise ? at.row : 1, first};
  };
  auto* out = c.template scratch<std::uint32_t>(static_cast<std::size_t>(is_a ? s.a : s.b));
  if (g.input == InputCast::Read && is_a == (g.gradient != GradientOperand::A)) {
    c.over(gpu::EightBitKernel<gpu::e4m3, gpu::e4m3>{matrices(c.template element<gpu::e4m3>(i)), s.row, nullptr, out},
           g.batch * rows * s.row / 4);
    return in_eight_bits<gpu::e4m3>(out, rows, s.row, c.template element<float>(g.scale_operand()));
  }
  auto* parts = c.template scratch<float>(static_cast<std::size_t>(s.parts));
  auto* scale = c.template scratch<float>(static_cast<std::size_t>(s.scales + i * kScalePlace));
  return g.gradient == which ? cast<gpu::e5m2>(c, matrices(c.data(i)), s.row, out, parts, scale)
                             : cast<gpu::e4m3>(c, matrices(c.data(i)), s.row, out, parts, scale);
}

/// What others read of A, whose rows are whole words: from scratch to the operands behind C.
template <class T>
static void write_cast(const Gemm& g, const GpuContext<T>& c, const GpuProduct::Matrix& a) {
  const int out = g.output_operand();
  const std::int64_t row = g.k / 4, words = g.cast_rows * row;
  const std::int32_t* first = g.writes_part() ? c.ints(out - 1) : nullptr;
  c.over(gpu::WordsFromKernel{row, words, first, reinterpret_cast<const std::uint32_t*>(a.at),
                              c.template elements_of<std::uint32_t>(out + 1)},
         words);
  c.over(gpu::WordsFromKernel{1, 1, nullptr, reinterpret_cast<const std::uint32_t*>(a.scale),
                              c.template elements_of<std::uint32_t>(out + 2)},
         1);
}

/// In 8 bits: both operands are cast, each with a scale of its own. cuBLASLt takes E5M2 beside E4M3, never twice.
template <class T>
static void run(const Gemm& g, const GpuContext<T>& c) {
  const int out = g.output_operand();
  const MatrixStrides y = c.matrix(out, g.batch, g.m, g.n);
  const EightBitScratch s = eight_bit_scratch(g);
  const GpuProduct::Matrix cast_a = cast_operand(g, c, s, GradientOperand::A),
                           cast_b = cast_operand(g, c, s, GradientOperand::B);
  if (g.input == InputCast::Written) write_cast(g, c, cast_a);
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
  if (g->narrow == Narrow::FourBits || g->num_scales() > 1) return nullptr;
  if (g->narrow == Narrow::None) return narrow || g->dtype == DType::F32 ? &enqueue<Gemm, void> : nullptr;
  if (g->input == InputCast::Written && g->k % gpu::kEightBitRow != 0) return nullptr;
  if (!narrow || (g->wide && g->bias) || g->n % gpu::kEightBitRow != 0) return nullptr;
  return g->dtype == DType::BF16 ? &enqueue<Gemm, gpu::bf16> : &enqueue<Gemm, gpu::f16>;
}

}  // namespace orrery
