// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/host/cross_entropy.hpp"
#include "kernels/host/sampling.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {

template <class T>
void run(const CrossEntropyForward& w, const OpContext<T>& c) {
  T* losses = static_cast<T*>(c.workspace());
  kernels::cross_entropy(kernels::CrossEntropyArgs<T>{.rows = w.rows,
                                                      .vocab = w.classes,
                                                      .logits = c.dense(0),
                                                      .targets = c.ints(1),
                                                      .loss = losses,
                                                      .lse = c.dense(2)});
  double sum = 0;
  for (std::int64_t r = 0; r < w.rows; ++r) sum += static_cast<double>(losses[r]);
  *c.dense(3) += T(w.weight * sum);
}

template <class T>
void run(const CrossEntropyBackward& w, const OpContext<T>& c) {
  if (w.op_by_op) {
    kernels::cross_entropy_scale(kernels::CrossEntropyScaleArgs<T>{.rows = w.rows,
                                                                   .cols = w.classes,
                                                                   .targets = c.ints(1),
                                                                   .sums = c.dense(2),
                                                                   .scale = T(w.weight),
                                                                   .x = c.dense(0)});
    return;
  }
  kernels::CrossEntropyBackwardArgs<T> a;
  a.rows = w.rows;
  a.vocab = w.classes;
  a.logits = c.dense(0);
  a.targets = c.ints(1);
  a.lse = c.dense(2);
  a.scale = T(w.weight);
  a.dlogits = c.dense(c.output());
  kernels::cross_entropy_backward(a);
}

template <class T>
void run(const MaskColumns& w, const OpContext<T>& c) {
  kernels::mask_columns(w.rows, w.cols, std::int64_t{*c.ints(0)}, w.total, c.dense(1));
}

template <class T>
void run(const RowMax& w, const OpContext<T>& c) {
  kernels::row_max(w.rows, w.cols, c.dense(0), c.dense(1));
}

template <class T>
void run(const CrossEntropySums& w, const OpContext<T>& c) {
  const kernels::CrossEntropySumsArgs<T> a{.rows = w.rows,
                                           .cols = w.classes,
                                           .logits = c.dense(0),
                                           .targets = c.ints(1),
                                           .max = c.dense(2),
                                           .sums = c.dense(3)};
  if (w.op_by_op)
    kernels::cross_entropy_sums_op_by_op(a, c.dense(0));
  else
    kernels::cross_entropy_sums(a);
}

template <class T>
void run(const CrossEntropyFinish& w, const OpContext<T>& c) {
  const double sum = kernels::cross_entropy_finish(kernels::CrossEntropyFinishArgs<T>{
      .rows = w.rows, .targets = c.ints(0), .max = c.dense(1), .sums = c.dense(2), .lse = c.dense(3)});
  *c.dense(4) += T(w.weight * sum);
}

/// Calls f(row, target) over targets that are scalars or indices 0 and 1.
template <class T, class F>
static void each_target(std::int64_t rows, const OpContext<T>& c, F&& f) {
  if (c.operand(1).dtype == DType::I32)
    for (std::int64_t r = 0; r < rows; ++r) f(r, T(c.ints(1)[r]));
  else
    for (std::int64_t r = 0; r < rows; ++r) f(r, c.dense(1)[r]);
}

/// softplus(x) = max(x, 0) + ln(1 + e^−|x|).
template <class T>
void run(const BinaryCrossEntropyForward& w, const OpContext<T>& c) {
  const T* x = c.dense(0);
  double sum = 0;
  each_target(w.rows, c, [&](std::int64_t r, T target) {
    const double v = static_cast<double>(x[r]);
    sum += std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))) - v * static_cast<double>(target);
  });
  *c.dense(2) += T(w.weight * sum);
}

template <class T>
void run(const BinaryCrossEntropyBackward& w, const OpContext<T>& c) {
  const T* x = c.dense(0);
  T* dx = c.dense(c.output());
  each_target(w.rows, c,
              [&](std::int64_t r, T target) { dx[r] = T(w.weight) * (T(1) / (T(1) + std::exp(-x[r])) - target); });
}

/// Rows are drawn one at a time when the logits are a view, each with its own number: the draw is the same.
template <class T>
void run(const Sample& s, const OpContext<T>& c) {
  const T* logits = c.data(0);
  std::int32_t* tokens = c.template elements_of<std::int32_t>(1);
  const std::int64_t stride = c.row_stride(0, s.rows, s.vocab);
  const std::int64_t rows = stride == s.vocab ? s.rows : 1;
  for (std::int64_t r = 0; r < s.rows; r += rows) {
    if (s.temperature == 0) {
      kernels::argmax(rows, s.vocab, logits + r * stride, tokens + r);
      continue;
    }
    kernels::SampleArgs<T> a;
    a.rows = rows;
    a.vocab = s.vocab;
    a.temperature = T(s.temperature);
    if (s.top_k > 0) a.top_k = s.top_k;
    a.top_p = s.top_p;
    a.seed = static_cast<std::uint64_t>(s.seed);
    a.step = static_cast<std::uint64_t>(c.at(s.step));
    a.first_row = static_cast<std::uint64_t>(r);
    a.logits = logits + r * stride;
    a.tokens = tokens + r;
    a.workspace = c.workspace();
    kernels::sample(a);
  }
}

Kernel find_loss(const Work& work) {
  return find_typed<CrossEntropyForward, CrossEntropyBackward, MaskColumns, RowMax, CrossEntropySums,
                    CrossEntropyFinish, BinaryCrossEntropyForward, BinaryCrossEntropyBackward, Sample>(work);
}

}  // namespace orrery
