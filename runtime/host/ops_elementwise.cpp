// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "kernels/host/activation.hpp"
#include "kernels/host/elementwise.hpp"
#include "kernels/host/random.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {
namespace {

kernels::Activation activation_of(ActivationKind kind) {
  constexpr kernels::Activation kOf[] = {kernels::Activation::Relu,    kernels::Activation::GeluTanh,
                                         kernels::Activation::GeluErf, kernels::Activation::Silu,
                                         kernels::Activation::Tanh,    kernels::Activation::QuickGelu,
                                         kernels::Activation::Sigmoid};
  return kOf[static_cast<int>(kind)];
}

/// Calls f(n, pointers) over operands of [rows, cols]: once when all are dense, else row by row.
template <class T, std::size_t N, class F>
void over_rows(const OpContext<T>& c, std::int64_t rows, std::int64_t cols, const std::array<int, N>& operands, F&& f) {
  std::array<T*, N> p;
  bool dense = true;
  for (std::size_t i = 0; i < N; ++i) {
    p[i] = c.data(operands[i]);
    dense = dense && c.operand(operands[i]).contiguous;
  }
  if (dense) return f(rows * cols, p);
  std::array<std::int64_t, N> stride;
  for (std::size_t i = 0; i < N; ++i) stride[i] = c.row_stride(operands[i], rows, cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    f(cols, p);
    for (std::size_t i = 0; i < N; ++i) p[i] += stride[i];
  }
}

}  // namespace

template <class T>
void run(const ActivationForward& a, const OpContext<T>& c) {
  const std::int64_t rows = c.rows_in_use(a, 1);
  const int y = c.output();
  kernels::activation(kernels::ActivationArgs<T>{.kind = activation_of(a.kind),
                                                 .rows = rows,
                                                 .cols = a.cols,
                                                 .x = c.data(0),
                                                 .x_stride = c.row_stride(0, rows, a.cols),
                                                 .y = c.data(y),
                                                 .y_stride = c.row_stride(y, rows, a.cols)});
}

template <class T>
void run(const ActivationBackward& a, const OpContext<T>& c) {
  const std::int64_t rows = c.rows_in_use(a, 2);
  const int dx = c.output();
  kernels::activation_backward(kernels::ActivationBackwardArgs<T>{.kind = activation_of(a.kind),
                                                                  .rows = rows,
                                                                  .cols = a.cols,
                                                                  .x = c.data(0),
                                                                  .x_stride = c.row_stride(0, rows, a.cols),
                                                                  .dy = c.data(1),
                                                                  .dy_stride = c.row_stride(1, rows, a.cols),
                                                                  .dx = c.data(dx),
                                                                  .dx_stride = c.row_stride(dx, rows, a.cols)});
}

template <class T>
void run(const GatedForward& g, const OpContext<T>& c) {
  const std::int64_t rows = c.rows_in_use(g, 2);
  const int y = c.output();
  kernels::gated_activation(kernels::GatedArgs<T>{.kind = activation_of(g.kind),
                                                  .rows = rows,
                                                  .cols = g.cols,
                                                  .gate = c.data(0),
                                                  .gate_stride = c.row_stride(0, rows, g.cols),
                                                  .up = c.data(1),
                                                  .up_stride = c.row_stride(1, rows, g.cols),
                                                  .y = c.data(y),
                                                  .y_stride = c.row_stride(y, rows, g.cols)});
}

template <class T>
void run(const GatedBackward& g, const OpContext<T>& c) {
  const std::int64_t rows = c.rows_in_use(g, 3);
  const int out = g.counted ? 4 : 3;
  const auto stride = [&](int i) { return c.row_stride(i, rows, g.cols); };
  kernels::gated_activation_backward(kernels::GatedBackwardArgs<T>{.kind = activation_of(g.kind),
                                                                   .rows = rows,
                                                                   .cols = g.cols,
                                                                   .gate = c.data(0),
                                                                   .gate_stride = stride(0),
                                                                   .up = c.data(1),
                                                                   .up_stride = stride(1),
                                                                   .dy = c.data(2),
                                                                   .dy_stride = stride(2),
                                                                   .dgate = c.data(out),
                                                                   .dgate_stride = stride(out),
                                                                   .dup = c.data(out + 1),
                                                                   .dup_stride = stride(out + 1)});
}

template <class T>
void run(const Add& a, const OpContext<T>& c) {
  over_rows(c, a.rows, a.cols, std::array{0, 1, c.output()},
            [](std::int64_t n, const std::array<T*, 3>& p) { kernels::add<T>(n, p[0], p[1], p[2]); });
}

template <class T>
void run(const Multiply& m, const OpContext<T>& c) {
  over_rows(c, m.rows, m.cols, std::array{0, 1, c.output()},
            [](std::int64_t n, const std::array<T*, 3>& p) { kernels::multiply<T>(n, p[0], p[1], p[2]); });
}

template <class T>
void run(const Fill& f, const OpContext<T>& c) {
  kernels::fill(f.elements, T(f.value), c.dense(0));
}

/// The key of an execution: its stream in the upper, its step in the lower half.
template <class T>
void run(const Dropout& d, const OpContext<T>& c) {
  const int out = c.output();
  if (d.reads_mask())
    return kernels::masked(d.rows * d.cols, d.probability, c.dense(0), c.template elements_of<std::uint8_t>(1),
                           c.dense(out));
  const auto stream = static_cast<std::uint64_t>(d.stream) << 32 | static_cast<std::uint32_t>(c.at(d.step));
  kernels::dropout(kernels::DropoutArgs<T>{
      .rows = d.rows,
      .cols = d.cols,
      .window = {d.first_row, d.first_col, d.global_cols},
      .key = {static_cast<std::uint64_t>(d.seed), stream},
      .p = d.probability,
      .row_ids = d.by_row ? c.ints(1) : nullptr,
      .x = c.dense(0),
      .y = c.dense(out),
      .mask = d.mask == KeptMask::Written ? c.template elements_of<std::uint8_t>(out + 1) : nullptr});
}

static void run(const Cast& k, const OpContext<void>& c) {
  const auto *x = c.elements_of<std::byte>(0), *end = x + static_cast<std::int64_t>(size_of(k.from, k.elements).base());
  auto* y = c.elements_of<std::byte>(1);
  if (k.from == k.to)
    std::copy(x, end, y);
  else if (k.from == DType::F32)
    kernels::cast(k.elements, reinterpret_cast<const float*>(x), reinterpret_cast<double*>(y));
  else
    kernels::cast(k.elements, reinterpret_cast<const double*>(x), reinterpret_cast<float*>(y));
}

Kernel find_elementwise(const Work& work) {
  const auto is_float = [](DType t) { return t == DType::F32 || t == DType::F64; };
  if (const auto* k = std::get_if<Cast>(&work); k && is_float(k->from) && is_float(k->to)) return &invoke<Cast, void>;
  return find_typed<ActivationForward, ActivationBackward, GatedForward, GatedBackward, Add, Multiply, Fill, Dropout>(
      work);
}

}  // namespace orrery
