// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/executor.hpp"
#include "runtime/prepared_plan.hpp"
#include "runtime/workers.hpp"

namespace orrery {

/// The executor of every device in this process: threads, storage, order and records. The device gives the functions.
class PlanExecutor final : public Executor {
 public:
  PlanExecutor(std::unique_ptr<const Device> device, const HostOptions& options);

  void prepare(const Plan& plan) override;
  void execute(const Plan& plan, const Bindings& bindings) override;
  void write(const Plan& plan, TensorId tensor, RankId rank, std::span<const double> values) override;
  void write(const Plan& plan, TensorId tensor, RankId rank, std::span<const std::int32_t> values) override;
  std::vector<double> read(const Plan& plan, TensorId tensor, RankId rank) const override;
  bool holds(const Plan& plan, RankId rank) const override;
  std::vector<double> fetch(const Plan& plan, TensorId tensor, RankId rank) const override;
  Timeline take() override;
  std::vector<double> disturbed() const override { return disturbed_; }
  double disturbed(const Span& span) const override;

 private:
  PreparedPlan& prepared(const Plan& plan);
  const RankRun& rank_of(const Plan& plan, TensorId tensor, RankId rank) const;
  void take_disturbed();
  template <class V>
  void store(const Plan& plan, TensorId tensor, RankId rank, std::span<const V> values);

  std::unique_ptr<const Device> device_;
  HostOptions options_;
  TierLinks links_;
  std::vector<std::unique_ptr<RankMemory>> memories_;  // per rank, shared by the plans
  std::map<const Plan*, std::unique_ptr<PreparedPlan>>
      plans_;  // looked up only, never walked in the order of addresses
  std::vector<PreparedPlan*> in_order_;
  Workers workers_;
  std::int64_t origin_ns_ = 0;                  // start of the first execution since the last take
  std::vector<std::int64_t> ends_ns_;           // of the executions since
  std::vector<double> disturbed_;               // of those of the last take
  std::vector<std::vector<CoreSample>> looks_;  // of that, per rank, in order; times from the start of the first one
  std::string plan_name_;
};

}  // namespace orrery
