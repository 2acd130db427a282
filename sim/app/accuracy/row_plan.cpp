// SPDX-License-Identifier: Apache-2.0
// Plans of rows, with what their software does in other ways than the strategies that wrote them.
#include <cmath>

#include "sim/app/accuracy/published_step.hpp"

namespace orrery {
namespace {

/// ReLU as eager PyTorch squares it: relu and pow; back x to the power of 1, times 2, times the gradient, and relu's.
/// Of these six kernels the last two read two matrices each, so with ours there is 2 times the traffic, and 10/3 back.
/// Left out: that they are launched one by one.
void square_eagerly(Work& work) {
  if (auto* a = std::get_if<ActivationForward>(&work); a && a->kind == ActivationKind::Relu) a->rows *= 2;
  if (auto* a = std::get_if<ActivationBackward>(&work); a && a->kind == ActivationKind::Relu)
    a->rows = a->rows * 10 / 3;
}

}  // namespace

Plan in_tf32(Plan plan) {
  for (Work& work : plan.works)
    if (auto* g = std::get_if<Gemm>(&work); g && g->dtype == DType::F32) g->dtype = DType::TF32;
  return plan;
}

Plan as_it_ran(Plan plan, const PublishedStep& step) {
  if (step.tf32) plan = in_tf32(std::move(plan));
  for (Work& work : plan.works) {
    if (step.eager_squares) square_eagerly(work);
    auto* c = std::get_if<Collective>(&work);
    if (c && c->kind == CollectiveKind::AllToAll && c->row > 0)
      c->bytes = Bytes{std::round(c->bytes.base() * step.sent)};
  }
  return plan;
}

}  // namespace orrery
