// SPDX-License-Identifier: Apache-2.0
// Ops that treat the rows of a matrix differently or add them up.
#include <algorithm>

#include "kernels/host/elementwise.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {

template <class T>
void run(const ScaleRows& s, const OpContext<T>& c) {
  const int out = c.output();
  const T* x = c.data(0);
  T* y = c.data(out);
  if (!s.by_row && !s.counted && c.operand(0).contiguous && c.operand(out).contiguous)
    return kernels::scale(s.rows * s.cols, T(s.factor), x, y);
  const T* factors = s.by_row ? c.dense(1) : nullptr;
  const std::int64_t rows = c.rows_in_use(s, out - 1);
  const std::int64_t from = c.row_stride(0, rows, s.cols), to = c.row_stride(out, rows, s.cols);
  for (std::int64_t r = 0; r < rows; ++r)
    kernels::scale(s.cols, factors ? T(s.factor) * factors[r] : T(s.factor), x + r * from, y + r * to);
}

template <class T>
void run(const RowDot& d, const OpContext<T>& c) {
  const T *a = c.data(0), *b = c.data(1);
  T* out = c.dense(c.output());
  const std::int64_t rows = c.rows_in_use(d, 2);
  const std::int64_t sa = c.row_stride(0, rows, d.cols), sb = c.row_stride(1, rows, d.cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    T sum = 0;
    for (std::int64_t i = 0; i < d.cols; ++i) sum += a[r * sa + i] * b[r * sb + i];
    out[r] = sum;
  }
}

template <class T>
void run(const AddRows& a, const OpContext<T>& c) {
  const int out = c.output();
  const T *x = c.data(0), *b = c.dense(1);
  T* y = c.data(out);
  if (a.period == 1 && c.operand(0).contiguous && c.operand(out).contiguous)
    return kernels::bias_add(a.rows, a.cols, x, b, y);
  const std::int64_t from = c.row_stride(0, a.rows, a.cols), to = c.row_stride(out, a.rows, a.cols);
  for (std::int64_t r = 0; r < a.rows; ++r) kernels::add(a.cols, x + r * from, b + r % a.period * a.cols, y + r * to);
}

template <class T>
void run(const SumRows& s, const OpContext<T>& c) {
  const T* x = c.data(0);
  T* out = c.dense(1);
  if (s.period == 1 && c.operand(0).contiguous)
    return kernels::column_sum(s.rows, s.cols, x, out,
                               s.accumulate ? kernels::Write::Accumulate : kernels::Write::Overwrite);
  if (!s.accumulate) kernels::fill(s.period * s.cols, T(0), out);
  const std::int64_t from = c.row_stride(0, s.rows, s.cols);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    T* row = out + r % s.period * s.cols;
    kernels::add(s.cols, row, x + r * from, row);
  }
}

template <class T>
void run(const BroadcastHeads& b, const OpContext<T>& c) {
  const T* x = c.data(0);
  T* y = c.data(1);
  const std::int64_t from = c.row_stride(0, b.rows, b.cols);
  const kernels::TokenStrides to = c.tokens(1, 1, b.heads, b.cols);
  for (std::int64_t r = 0; r < b.rows; ++r)
    for (std::int64_t h = 0; h < b.heads; ++h) std::copy_n(x + r * from, b.cols, y + r * to.token + h * to.head);
}

template <class T>
void run(const SumHeads& s, const OpContext<T>& c) {
  const T* dy = c.data(0);
  T* dx = c.data(1);
  const kernels::TokenStrides from = c.tokens(0, 1, s.heads, s.cols);
  const std::int64_t to = c.row_stride(1, s.rows, s.cols);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    T* row = dx + r * to;
    if (c.operand(1).access == Access::Write) std::fill_n(row, s.cols, T(0));
    for (std::int64_t h = 0; h < s.heads; ++h) kernels::add(s.cols, row, dy + r * from.token + h * from.head, row);
  }
}

Kernel find_rows(const Work& work) {
  return find_typed<ScaleRows, RowDot, AddRows, SumRows, BroadcastHeads, SumHeads>(work);
}

}  // namespace orrery
