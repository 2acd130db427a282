// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan_executor.hpp"

namespace orrery {
namespace {

void compute_nothing(const OpCall&) {}

class NullDevice final : public Device {
 public:
  Kernel kernel(const Plan&, const Op&) const override { return &compute_nothing; }
  void check_tensors(const Plan&) const override {}
  bool holds_data() const override { return false; }
  std::string machine() const override { return "null device"; }
};

}  // namespace

std::unique_ptr<Executor> make_null_executor(const HostOptions& options) {
  return std::make_unique<PlanExecutor>(std::make_unique<NullDevice>(), options);
}

}  // namespace orrery
