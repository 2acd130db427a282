// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>

#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/rows.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"

namespace orrery {
namespace {

gpu::Activate activate(ActivationKind kind) { return static_cast<gpu::Activate>(kind); }

/// f over [rows, cols], inputs and outputs being these operands. With `count` the last of so many indices is the number
/// of rows in use.
template <class T, class F>
void map(const GpuContext<T>& c, const F& f, std::int64_t rows, std::int64_t cols, std::array<int, F::kIn> in,
         std::array<int, F::kOut> out, int count = -1) {
  gpu::MapKernel<T, F> kernel{.f = f, .rows = rows, .cols = cols, .in = {}, .out = {}};
  bool dense = count < 0, wide = true;
  const auto place = [&](int i) {
    dense = dense && c.operand(i).contiguous;
    wide = wide && c.is_wide(i, rows, cols);
    return c.matrix_view(i, rows, cols);
  };
  for (std::size_t k = 0; k < in.size(); ++k) kernel.in[k] = place(in[k]);
  for (std::size_t k = 0; k < out.size(); ++k) kernel.out[k] = place(out[k]);
  if (dense && !requires { F::kPlaced; }) kernel.rows = 1, kernel.cols = rows * cols;  // no row to be found
  kernel.wide = wide;
  if (count >= 0) kernel.count = c.count_at(count);
  c.over(kernel, rows * cols / (wide ? gpu::kPack<T> : 1));
}

}  // namespace

template <class T>
void run(const ActivationForward& a, const GpuContext<T>& c) {
  map(c, gpu::ActivationOf{activate(a.kind)}, c.rows_of(a), a.cols, {0}, {c.output()}, a.counted ? 1 : -1);
}
template <class T>
void run(const ActivationBackward& a, const GpuContext<T>& c) {
  map(c, gpu::ActivationSlope{activate(a.kind)}, c.rows_of(a), a.cols, {0, 1}, {c.output()}, a.counted ? 2 : -1);
}
template <class T>
void run(const GatedForward& g, const GpuContext<T>& c) {
  map(c, gpu::GatedOf{activate(g.kind)}, c.rows_of(g), g.cols, {0, 1}, {c.output()}, g.counted ? 2 : -1);
}
template <class T>
void run(const GatedBackward& g, const GpuContext<T>& c) {
  const int out = g.counted ? 4 : 3;
  map(c, gpu::GatedSlope{activate(g.kind)}, c.rows_of(g), g.cols, {0, 1, 2}, {out, out + 1}, g.counted ? 3 : -1);
}
template <class T>
void run(const Add& a, const GpuContext<T>& c) {
  map(c, gpu::SumOfTwo{}, a.rows, a.cols, {0, 1}, {c.output()});
}
template <class T>
void run(const Multiply& m, const GpuContext<T>& c) {
  map(c, gpu::ProductOfTwo{}, m.rows, m.cols, {0, 1}, {c.output()});
}

template <class T>
void run(const ScaleRows& s, const GpuContext<T>& c) {
  const int out = c.output();
  const auto factor = static_cast<float>(s.factor);
  const std::int64_t rows = c.rows_of(s);
  const int count = s.counted ? out - 1 : -1;
  if (!s.by_row) return map(c, gpu::Scaled{factor}, rows, s.cols, {0}, {out}, count);
  gpu::MapKernel<T, gpu::ProductOfTwo> kernel{.f = {factor}, .rows = rows, .cols = s.cols, .in = {}, .out = {}};
  kernel.in[0] = c.matrix_view(0, rows, s.cols);
  kernel.in[1] = {.at = c.dense(1), .stride = 1, .by_row = true};
  kernel.out[0] = c.matrix_view(out, rows, s.cols);
  kernel.wide = c.is_wide(0, rows, s.cols) && c.is_wide(out, rows, s.cols);
  if (count >= 0) kernel.count = c.count_at(count);
  c.over(kernel, rows * s.cols / (kernel.wide ? gpu::kPack<T> : 1));
}

template <class T>
void run(const AddRows& a, const GpuContext<T>& c) {
  const int out = c.output();
  gpu::MapKernel<T, gpu::SumOfTwo> kernel{.f = {}, .rows = a.rows, .cols = a.cols, .in = {}, .out = {}};
  kernel.in[0] = c.matrix_view(0, a.rows, a.cols);
  kernel.in[1] = {.at = c.dense(1), .stride = a.cols, .period = a.period};
  kernel.out[0] = c.matrix_view(out, a.rows, a.cols);
  kernel.wide = c.is_wide(0, a.rows, a.cols) && c.is_wide(1, a.period, a.cols) && c.is_wide(out, a.rows, a.cols);
  c.over(kernel, a.rows * a.cols / (kernel.wide ? gpu::kPack<T> : 1));
}

/// The key of an execution as on the host: its stream in the upper, its step in the lower half.
template <class T>
void run(const Dropout& d, const GpuContext<T>& c) {
  const auto stream = static_cast<std::uint64_t>(d.stream) << 32 | static_cast<std::uint32_t>(c.at(d.step));
  const double threshold = std::ceil(std::max(0.0, d.probability * 0x1p32 - 0.5));
  const bool none = threshold > 4294967295.0;
  const auto factor = static_cast<float>(1 / (1 - d.probability));
  const int out = c.output();
  if (d.reads_mask())
    return map(c, gpu::MaskedOf{factor, c.template elements_of<std::uint8_t>(1), d.cols}, d.rows, d.cols, {0}, {out});
  map(c,
      gpu::DropoutOf{.key = {static_cast<std::uint64_t>(d.seed), stream},
                     .first_row = d.first_row,
                     .first_col = d.first_col,
                     .global_cols = d.global_cols,
                     .row_ids = d.by_row ? c.ints(1) : nullptr,
                     .factor = factor,
                     .least = none ? 0u : static_cast<std::uint32_t>(threshold),
                     .none = none,
                     .mask = d.mask == KeptMask::Written ? c.template elements_of<std::uint8_t>(out + 1) : nullptr,
                     .cols = d.cols},
      d.rows, d.cols, {0}, {out});
}

/// Σ over rows with equal residue, in parts; see columns.hpp.
template <class T>
void run(const SumRows& s, const GpuContext<T>& c) {
  auto* sums = c.template scratch<float>();
  const gpu::ColumnPartsKernel<T> k{.rows = s.rows,
                                    .cols = s.cols,
                                    .period = s.period,
                                    .dy_stride = c.row_stride(0, s.rows, s.cols),
                                    .x_stride = 0,
                                    .dy = c.data(0),
                                    .x = nullptr,
                                    .mean = {},
                                    .rstd = {},
                                    .product = nullptr,
                                    .plain = sums,
                                    .wide = c.is_wide(0, s.rows, s.cols)};
  c.launch(k, k.blocks());
  const gpu::SumPartsKernel<T> sum{.parts = gpu::column_parts(s.rows / s.period),
                                   .cols = s.period * s.cols,
                                   .from = sums,
                                   .out = c.dense(1),
                                   .adds = s.accumulate};
  c.each_row(sum, sum.blocks(), sum.kShared);
}

template <class T>
void run(const SumHeads& s, const GpuContext<T>& c) {
  const kernels::TokenStrides from = c.tokens(0, 1, s.heads, s.cols);
  c.over(gpu::SumHeadsKernel<T>{.rows = s.rows,
                                .heads = s.heads,
                                .cols = s.cols,
                                .token_stride = from.token,
                                .head_stride = from.head,
                                .dx_stride = c.row_stride(1, s.rows, s.cols),
                                .dy = c.data(0),
                                .dx = c.data(1),
                                .adds = c.operand(1).access == Access::ReadWrite},
         s.rows * s.cols);
}

namespace {

template <class From, class To>
void cast(const Cast& k, const GpuContext<void>& c) {
  c.over(gpu::CastKernel<From, To>{k.elements, c.elements_of<From>(0), c.elements_of<To>(1)},
         k.elements / gpu::CastKernel<From, To>::N + 1);
}

using CastFunction = void (*)(const Cast&, const GpuContext<void>&);
CastFunction cast_function(DType from, DType to) {
  struct Pair {
    DType from, to;
    CastFunction function;
  };
  constexpr Pair kPairs[] = {
      {DType::F32, DType::BF16, &cast<float, gpu::bf16>},    {DType::F32, DType::F16, &cast<float, gpu::f16>},
      {DType::F32, DType::F64, &cast<float, double>},        {DType::BF16, DType::F32, &cast<gpu::bf16, float>},
      {DType::F16, DType::F32, &cast<gpu::f16, float>},      {DType::F64, DType::F32, &cast<double, float>},
      {DType::BF16, DType::F16, &cast<gpu::bf16, gpu::f16>}, {DType::F16, DType::BF16, &cast<gpu::f16, gpu::bf16>}};
  for (const Pair& p : kPairs)
    if (p.from == from && p.to == to) return p.function;
  return nullptr;
}

}  // namespace

static void run(const Cast& k, const GpuContext<void>& c) {
  if (k.from != k.to) return cast_function(k.from, k.to)(k, c);
  c.queue().driver.copy(c.call().place(c.operand(1)), c.call().place(c.operand(0)),
                        static_cast<std::int64_t>(size_of(k.from, k.elements).base()), c.queue().stream);
}

Kernel find_gpu_elementwise(const Work& work) {
  if (const auto* k = std::get_if<Cast>(&work))
    return k->from == k->to || cast_function(k->from, k->to) ? &enqueue<Cast, void> : nullptr;
  return find_gpu_typed<ActivationForward, ActivationBackward, GatedForward, GatedBackward, Add, Multiply, ScaleRows,
                        AddRows, Dropout, SumRows, SumHeads>(work);
}

}  // namespace orrery
