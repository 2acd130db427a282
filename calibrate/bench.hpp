// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/plan/plan.hpp"

namespace orrery {

/// What a persistent tensor holds before the plan runs. Of tensors without an entry, parameters hold small numbers
/// around zero, vectors of parameters ones, and all others small positive numbers; integers are zero.
struct Contents {
  TensorId tensor;
  std::vector<double> values;
};

/// A plan to measure, with what its persistent tensors hold.
struct Bench {
  Plan plan;
  std::vector<Contents> contents;
  Bindings bindings;
  double weight = 1;  // of its ops in a fit
};

}  // namespace orrery
