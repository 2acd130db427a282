// SPDX-License-Identifier: Apache-2.0
// A plan of one rank under test: tensors with random contents, ops, and what the host executor makes of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "runtime/executor.hpp"

namespace orrery {

class HostTrial {
 public:
  explicit HostTrial(std::uint64_t seed = 1) : random_{seed} {}

  PlanBuilder& builder() { return builder_; }
  /// A tensor with contents in [low, high).
  TensorId input(std::string_view name, const Shape& shape, double low = -1, double high = 1) {
    const TensorId t = make(name, shape, DType::F64);
    std::uniform_real_distribution<double> draw{low, high};
    for (std::int64_t i = 0; i < shape.elements(); ++i) values_[t].push_back(draw(random_));
    return t;
  }
  TensorId input(std::string_view name, const Shape& shape, std::vector<double> values) {
    const TensorId t = make(name, shape, DType::F64);
    values_[t] = std::move(values);
    return t;
  }
  TensorId indices(std::string_view name, const Shape& shape, std::vector<std::int32_t> values) {
    const TensorId t = make(name, shape, DType::I32);
    ints_[t] = std::move(values);
    return t;
  }
  TensorId output(std::string_view name, const Shape& shape, DType dtype = DType::F64) {
    return make(name, shape, dtype);
  }
  template <class... Operands>
  void add(const Work& work, Operands... operands) {
    builder_.add("op", work, {operands...});
  }

  void run(const Bindings& bindings = {}) {
    plan_ = builder_.take(&host_workspaces());
    executor_ = make_host_executor();
    executor_->prepare(plan_);
    for (const auto& [t, v] : values_) executor_->write(plan_, t, RankId{0}, v);
    for (const auto& [t, v] : ints_) executor_->write(plan_, t, RankId{0}, v);
    executor_->execute(plan_, bindings);
  }
  /// What was written to a tensor before the run.
  const std::vector<double>& given(TensorId t) const { return values_.at(t); }
  std::vector<double> result(TensorId t) const { return executor_->read(plan_, t, RankId{0}); }

 private:
  TensorId make(std::string_view name, const Shape& shape, DType dtype) {
    return builder_.tensor(name, shape, {.dtype = dtype, .persistent = true});
  }

  PlanBuilder builder_{"trial"};
  Plan plan_;
  std::mt19937_64 random_;
  std::map<TensorId, std::vector<double>> values_;
  std::map<TensorId, std::vector<std::int32_t>> ints_;
  std::unique_ptr<Executor> executor_;
};

/// The largest difference between two lists of one length; infinite when the lengths differ.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace orrery
