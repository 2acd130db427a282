// SPDX-License-Identifier: Apache-2.0
// One op on the cuda device and on the host: the same plan in a type of the device and in double.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/cuda/gpu_executor.hpp"
#include "runtime/executor.hpp"

namespace orrery::testing {

/// A computer whose first devices the tests of `gpu` use, or one that is emulated.
std::shared_ptr<GpuDriver> gpu_under_test();

/// What random inputs are drawn from: fresh in each run of the program. `--rng-seed N` takes that of an earlier run.
inline std::uint32_t fresh_seed() {
  static const std::uint32_t seed = Catch::rngSeed() != 0 ? Catch::rngSeed() : std::random_device{}();
  return seed;
}

/// A plan of one op. Numbers of inputs are drawn by their order, rounded to the type of the device, the same for both.
class OpTrial {
 public:
  OpTrial(DType dtype, DType rounded) : dtype_{dtype}, rounded_{rounded} {}

  DType dtype() const { return dtype_; }
  PlanBuilder& builder() { return builder_; }
  TensorId input(const std::string& name, const Shape& shape, double low = -1, double high = 1) {
    std::uniform_real_distribution<double> draw{low, high};
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(rounded(draw(random_)));
    return numbers(name, shape, std::move(values), dtype_);
  }
  TensorId numbers(const std::string& name, const Shape& shape, std::vector<double> values, DType dtype) {
    const TensorId t = builder_.tensor(name, shape, {.dtype = dtype, .persistent = true});
    values_[t] = std::move(values);
    return t;
  }
  TensorId indices(const std::string& name, const Shape& shape, std::vector<std::int32_t> values) {
    const TensorId t = builder_.tensor(name, shape, {.dtype = DType::I32, .persistent = true});
    ints_[t] = std::move(values);
    return t;
  }
  /// Poisoned: NaN, or −7 for indices. What an op adds to is an input, which `result` makes an output as well.
  TensorId output(const std::string& name, const Shape& shape) { return typed_output(name, shape, dtype_); }
  TensorId typed_output(const std::string& name, const Shape& shape, DType dtype) {
    const double poison = dtype == DType::I32 ? -7 : std::numeric_limits<double>::quiet_NaN();
    const TensorId t = builder_.tensor(name, shape, {.dtype = dtype, .persistent = true});
    values_[t] = std::vector<double>(static_cast<std::size_t>(shape.elements()), poison);
    result(t);
    return t;
  }
  void result(TensorId t) { results_.push_back(t); }
  template <class... Operands>
  void add(const Work& work, Operands... operands) {
    builder_.add("op", work, {operands...});
  }
  /// The results in the order of their declaration.
  std::vector<std::vector<double>> run(Executor& executor, const WorkspaceModel& workspaces, const Bindings& bindings) {
    plan_ = builder_.take(&workspaces);
    executor.prepare(plan_);
    for (const auto& [t, v] : values_) executor.write(plan_, t, RankId{0}, v);
    for (const auto& [t, v] : ints_) executor.write(plan_, t, RankId{0}, v);
    executor.execute(plan_, bindings);
    std::vector<std::vector<double>> all;
    for (const TensorId t : results_) all.push_back(executor.read(plan_, t, RankId{0}));
    return all;
  }

 private:
  double rounded(double x) const {
    const auto f = static_cast<float>(x);
    if (rounded_ == DType::BF16) return kernels::cuda::to_float(kernels::cuda::round_to_bf16(f));
    return rounded_ == DType::F16 ? kernels::cuda::to_float(kernels::cuda::round_to_f16(f)) : f;
  }

  DType dtype_, rounded_;
  PlanBuilder builder_{"trial"};
  Plan plan_;
  std::mt19937_64 random_{fresh_seed()};
  std::map<TensorId, std::vector<double>> values_;
  std::map<TensorId, std::vector<std::int32_t>> ints_;
  std::vector<TensorId> results_;
};

/// ‖x − reference‖ / ‖reference‖; −∞ and +∞ must be where the reference has them.
inline double relative_distance(const std::vector<double>& x, const std::vector<double>& reference) {
  if (x.size() != reference.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isinf(reference[i]) && x[i] == reference[i]) continue;
    difference += (x[i] - reference[i]) * (x[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  const double d = norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

/// Runs what `describe` builds in each type of the device, and on the host in double.
inline void compare_with_host(const std::function<void(OpTrial&)>& describe, const Bindings& bindings = {},
                              std::vector<DType> types = {DType::F32, DType::BF16, DType::F16}) {
  for (const DType dtype : types) {
    OpTrial on_host{DType::F64, dtype}, on_gpu{dtype, dtype};
    describe(on_host);
    describe(on_gpu);
    const auto host = make_host_executor();
    const auto device = make_gpu_executor(gpu_under_test());
    const auto want = on_host.run(*host, host_workspaces(), bindings);
    const auto got = on_gpu.run(*device, gpu_workspaces(), bindings);
    REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO("result " << i << " in " << name_of(dtype) << "; --rng-seed " << fresh_seed());
      CHECK(relative_distance(got[i], want[i]) < (dtype == DType::F32 ? 1e-5 : 1e-2));
    }
  }
}

}  // namespace orrery::testing
