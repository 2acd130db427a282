// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan_executor.hpp"
#include "runtime/tier_links.hpp"

namespace orrery {
namespace {

void compute_nothing(const OpCall&) {}

void count_copy(const OpCall& call) {
  const Copy& copy = *static_cast<const Copy*>(call.op->work);
  call.transfers->count(copy.from, copy.to, static_cast<std::int64_t>(copy.moved(*call.bindings).base()));
}

class NullDevice final : public Device {
 public:
  Kernel kernel(const Plan& plan, const Op& op) const override {
    return std::holds_alternative<Copy>(plan.work(op)) ? &count_copy : &compute_nothing;
  }
  void check_tensors(const Plan&) const override {}
  bool holds_data() const override { return false; }
  std::string machine() const override { return "null device"; }
};

}  // namespace

std::unique_ptr<Executor> make_null_executor(const HostOptions& options) {
  return std::make_unique<PlanExecutor>(std::make_unique<NullDevice>(), options);
}

}  // namespace orrery
