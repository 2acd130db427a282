// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/base/random.hpp"
#include "sim/plan/work.hpp"

namespace orrery {

// Ops of the table in suites.cpp, of random sizes.
Work draw_forward_nt(Random&);
Work draw_forward_nn(Random&);
Work draw_gradient_tn(Random&);
Work draw_tt(Random&);
Work draw_batched(Random&);
Work draw_few_nt(Random&);
Work draw_few_nn(Random&);
Work draw_few_tn(Random&);
Work draw_grouped(Random&);
Work draw_attention_forward(Random&);
Work draw_attention_backward(Random&);
Work draw_attention_decode(Random&);
Work draw_cholesky(Random&);
Work draw_cholesky_solve(Random&);
Work draw_covariance(Random&);
Work draw_dots(Random&);
Work draw_dots_backward(Random&);

}  // namespace orrery
