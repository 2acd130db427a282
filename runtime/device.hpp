// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "runtime/op_call.hpp"

namespace orrery {

/// What the executors differ in: which functions run the ops, and whether storage holds anything.
class Device {
 public:
  virtual ~Device() = default;
  /// The function that runs `op`. Throws UserError when there is none.
  virtual Kernel kernel(const Plan& plan, const Op& op) const = 0;
  /// Throws UserError when a tensor of the plan cannot be held.
  virtual void check_tensors(const Plan& plan) const = 0;
  virtual bool holds_data() const = 0;
  virtual std::string machine() const = 0;
};

}  // namespace orrery
