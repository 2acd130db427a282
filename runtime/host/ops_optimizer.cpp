// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/host/optimizer.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {

template <class T>
void run(const SumSquares& s, const OpContext<T>& c) {
  kernels::sum_of_squares(s.elements, c.dense(0), c.template elements_of<double>(1));
}

/// The factor on the gradient: the squared norm is the operand after the moments, there with clipping only.
static double gradient_scale(double max_norm, int norm_operand, const OpContextBase& c) {
  return max_norm > 0 ? kernels::clip_factor(*c.elements_of<double>(norm_operand), max_norm) : 1.0;
}

template <class T>
void run(const Sgd& s, const OpContext<T>& c) {
  kernels::sgd(kernels::SgdArgs<T>{.n = s.elements,
                                   .rate = s.rate,
                                   .momentum = s.momentum,
                                   .weight_decay = s.decay,
                                   .nesterov = s.nesterov,
                                   .gradient_scale = gradient_scale(s.max_norm, 3, c),
                                   .weights = c.dense(0),
                                   .gradient = c.dense(1),
                                   .velocity = s.momentum != 0 ? c.dense(2) : nullptr});
}

template <class T>
void run(const AdamW& a, const OpContext<T>& c) {
  const std::int64_t step = c.at(a.step);
  if (step < 1) c.fail(fmt::format("step {}; steps count from 1", step));
  kernels::adamw(kernels::AdamWArgs<T>{.n = a.elements,
                                       .rate = a.rate,
                                       .beta1 = a.beta1,
                                       .beta2 = a.beta2,
                                       .epsilon = a.epsilon,
                                       .weight_decay = a.decay,
                                       .step = step,
                                       .gradient_scale = gradient_scale(a.max_norm, 4, c),
                                       .weights = c.dense(0),
                                       .gradient = c.dense(1),
                                       .m = c.dense(2),
                                       .v = c.dense(3)});
}

Kernel find_optimizer(const Work& work) { return find_typed<SumSquares, Sgd, AdamW>(work); }

}  // namespace orrery
