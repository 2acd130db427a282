// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/gemm.hpp"
#include "kernels/host/narrow.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"
#include "runtime/host/workspaces.hpp"

namespace orrery {
namespace {

kernels::Transpose transpose(bool yes) { return yes ? kernels::Transpose::Yes : kernels::Transpose::No; }
kernels::Write write(bool accumulate) { return accumulate ? kernels::Write::Accumulate : kernels::Write::Overwrite; }

}  // namespace

/// What an operand is cast to, and whether the product adds up along its columns.
struct CastOf {
  Narrow narrow;
  bool is_gradient, down;
};
template <class T>
T cast(const CastOf& to, const kernels::NarrowCast<T>& matrices) {
  if (to.narrow == Narrow::FourBits) return kernels::cast_to_four_bits(matrices, to.down);
  return kernels::cast_to_eight_bits(matrices, to.is_gradient ? kernels::EightBits::E5M2 : kernels::EightBits::E4M3);
}

/// An input that lies cast in memory: its numbers go to `out`; returns their scale. Those of several scales, one for
/// each of as many equal parts, are multiplied by them.
template <class T>
T read_cast(const OpContextBase& c, int numbers, int scale, std::int64_t count, T* out, std::int64_t num_scales = 1) {
  const auto* codes = c.elements_of<std::uint8_t>(numbers);
  const float* scales = c.element<float>(scale);
  for (std::int64_t i = 0; i < count; ++i) out[i] = T(kernels::e4m3_value(codes[i]));
  if (num_scales == 1) return T(*scales);
  for (std::int64_t i = 0; i < count; ++i) out[i] *= T(scales[i / (count / num_scales)]);
  return T(1);
}
/// The other way round, to operands `out` and the one behind it.
template <class T>
void write_cast(const OpContextBase& c, int out, const T* numbers, std::int64_t count, T scale) {
  auto* codes = c.elements_of<std::uint8_t>(out);
  for (std::int64_t i = 0; i < count; ++i) codes[i] = kernels::e4m3_code(static_cast<double>(numbers[i]));
  *c.element<float>(out + 1) = static_cast<float>(scale);
}

/// Both operands become numbers of few bits times a scale; they lie behind the scratch of the product.
template <class T>
void cast_operands(const Gemm& g, const OpContextBase& c, kernels::GemmArgs<T>& args) {
  auto* space = static_cast<std::byte*>(args.workspace) + narrow_offset(g, sizeof(T));
  auto* a = reinterpret_cast<T*>(space);
  T* b = a + g.batch * g.m * g.k;
  const std::int64_t rows_a = g.transpose_a ? g.k : g.m, rows_b = g.transpose_b ? g.n : g.k;
  const std::int64_t cols_a = g.m * g.k / rows_a, cols_b = g.k * g.n / rows_b;
  const bool reads = g.input == InputCast::Read, reads_b = reads && g.gradient == GradientOperand::A;
  const T scale_a = reads && !reads_b ? read_cast(c, 0, g.scale_operand(), rows_a * cols_a, a, g.num_scales())
                                      : cast<T>({g.narrow, g.gradient == GradientOperand::A, g.transpose_a},
                                                {g.batch, rows_a, cols_a, args.a, args.lda, args.stride_a, a});
  const T scale_b = reads_b ? read_cast(c, 1, g.scale_operand(), rows_b * cols_b, b, g.num_scales())
                            : cast<T>({g.narrow, g.gradient == GradientOperand::B, !g.transpose_b},
                                      {g.batch, rows_b, cols_b, args.b, args.ldb, args.stride_b, b});
  if (g.input == InputCast::Written) {
    const std::int64_t first = g.writes_part() ? *c.ints(g.output_operand() - 1) : 0;
    write_cast(c, g.output_operand() + 1, a + first * cols_a, g.cast_rows * cols_a, scale_a);
  }
  args.a = a, args.lda = cols_a, args.stride_a = rows_a * cols_a;
  args.b = b, args.ldb = cols_b, args.stride_b = rows_b * cols_b;
  args.alpha *= scale_a * scale_b;
}

template <class T>
void run(const Gemm& g, const OpContext<T>& c) {
  const int out = g.output_operand();
  const MatrixStrides a = g.transpose_a ? c.matrix(0, g.batch, g.k, g.m) : c.matrix(0, g.batch, g.m, g.k);
  const MatrixStrides b = g.transpose_b ? c.matrix(1, g.batch, g.n, g.k) : c.matrix(1, g.batch, g.k, g.n);
  const MatrixStrides y = c.matrix(out, g.batch, g.m, g.n);
  kernels::GemmArgs<T> args{.dims = {g.m, g.n, g.k},
                            .transpose_a = transpose(g.transpose_a),
                            .transpose_b = transpose(g.transpose_b),
                            .a = c.data(0),
                            .lda = a.row,
                            .b = c.data(1),
                            .ldb = b.row,
                            .c = c.data(out),
                            .ldc = y.row,
                            .batch = g.batch,
                            .stride_a = a.batch,
                            .stride_b = b.batch,
                            .stride_c = y.batch,
                            .alpha = T(g.alpha),
                            .write = write(g.accumulate),
                            .bias = g.bias ? c.dense(2) : nullptr,
                            .workspace = c.workspace()};
  if (g.narrow != Narrow::None) cast_operands(g, c, args);
  kernels::gemm(args);
}

/// As cast_operands of rows (those of the groups) and weights, or of rows twice. The scales go with the first.
template <class T>
void cast_operands(const GroupedGemm& g, const OpContext<T>& c, kernels::GroupedGemmArgs<T>& args, bool swap) {
  const bool gradient = g.mode == GroupedMode::WeightGradient, input = g.mode == GroupedMode::InputGradient;
  const std::int64_t rows = args.offsets[g.groups], cols = input ? g.n : g.k;
  const std::int64_t groups_b = gradient ? 1 : g.groups;
  const std::int64_t rows_b = gradient ? rows : g.transpose_b ? g.n : g.k;
  const std::int64_t cols_b = !gradient && g.transpose_b ? g.k : g.n;
  auto* a = reinterpret_cast<T*>(static_cast<std::byte*>(args.workspace) + narrow_offset(g, sizeof(T)));
  T* b = a + rows * cols;
  const T scale_a = g.input == InputCast::Read ? read_cast(c, 0, g.scale_operand(), rows * cols, a)
                                               : cast<T>({g.narrow, g.gradient() == GradientOperand::A, gradient},
                                                         {1, rows, cols, c.dense(0), cols, 0, a});
  if (g.input == InputCast::Written) write_cast(c, g.output_operand() + 1, a, rows * cols, scale_a);
  const T scale = scale_a * cast<T>({g.narrow, g.gradient() == GradientOperand::B, gradient || input == g.transpose_b},
                                    {groups_b, rows_b, cols_b, c.dense(1), cols_b, rows_b * cols_b, b});
  for (std::int64_t i = 0; i < rows * cols; ++i) a[i] *= scale;
  args.x = swap ? b : a;
  args.w = swap ? a : b;
}

/// Weights [groups, n, k] swap the roles of the products: forward is an input gradient and the other way round, and the
/// weight gradient takes its operands in the other order.
template <class T>
void run(const GroupedGemm& g, const OpContext<T>& c) {
  const bool gradient = g.mode == GroupedMode::WeightGradient;
  const bool swap = gradient && g.transpose_b;
  kernels::GroupedGemmArgs<T> args{.groups = g.groups,
                                   .k = g.transpose_b ? g.n : g.k,
                                   .n = g.transpose_b ? g.k : g.n,
                                   .offsets = c.ints(2),
                                   .x = c.dense(swap ? 1 : 0),
                                   .w = c.dense(swap ? 0 : 1),
                                   .y = c.dense(g.output_operand()),
                                   .write = write(g.accumulate),
                                   .workspace = c.workspace()};
  if (g.narrow != Narrow::None) cast_operands(g, c, args, swap);
  if (gradient) return kernels::grouped_gemm_weight_gradient(args);
  if ((g.mode == GroupedMode::Forward) == g.transpose_b) return kernels::grouped_gemm_input_gradient(args);
  kernels::grouped_gemm(args);
}

Kernel find_gemm(const Work& work) { return find_typed<Gemm, GroupedGemm>(work); }

}  // namespace orrery
