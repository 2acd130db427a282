// SPDX-License-Identifier: Apache-2.0
#include "calibrate/gpu_noise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/cuda/gpu_executor.hpp"
#include "sim/base/random.hpp"
#include "sim/plan/builder.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kLongestRow = 1 << 16, kShortestRow = 64, kTableElements = 1 << 20;

std::vector<bool> tensors_read(const Plan& plan) {
  std::vector<bool> read(plan.tensors.size());
  for (const Op& op : plan.ops)
    for (const Operand& o : plan.operands_of(op))
      if (o.access() != Access::Write) read[plan.owner(o.tensor()).index()] = true;
  for (const Constant& c : plan.constants) read[c.tensor.index()] = false;
  return read;
}

bool is_noisy(const Tensor& t) {
  const bool is_float = t.dtype == DType::F32 || t.dtype == DType::BF16 || t.dtype == DType::F16;
  return is_float && t.persistent && t.base.is_none() && t.tier == Tier::Device;
}

}  // namespace

GpuNoise::GpuNoise(const Plan& measured) {
  if (measured.mesh.size() != 1) return;
  PlanBuilder b{"noise"};
  const std::vector<bool> read = tensors_read(measured);
  for (std::size_t i = 0; i < measured.tensors.size(); ++i) {
    const Tensor& t = measured.tensors[i];
    if (!read[i] || !is_noisy(t)) continue;
    const std::int64_t elements = measured.shape(TensorId{i}).elements();
    std::int64_t cols = std::gcd(elements, kLongestRow);
    if (cols < kShortestRow) cols = elements;
    Rows r{.rows = elements / cols};
    r.table_rows = std::clamp<std::int64_t>(kTableElements / cols, 1, r.rows);
    r.table_elements = r.table_rows * cols;
    const auto tensor = [&b](std::string_view name, const Shape& shape, DType dtype) {
      return b.tensor(name, shape, {.dtype = dtype, .persistent = true});
    };
    r.table = tensor(fmt::format("noise {}", i), Shape{r.table_rows, cols}, t.dtype);
    r.index = tensor(fmt::format("rows of noise {}", i), Shape{r.rows}, DType::I32);
    b.add("noise", Gather{r.rows, cols, r.table_rows, 0, r.table_rows, t.dtype},
          {reads(r.table), reads(r.index), writes(tensor(measured.names[t.name], Shape{r.rows, cols}, t.dtype))});
    rows_.push_back(r);
  }
  if (!rows_.empty()) plan_ = b.take(&gpu_workspaces());
}

void GpuNoise::fill(Executor& executor) {
  if (rows_.empty()) return;
  Random random{1};
  executor.prepare(plan_);
  for (const Rows& r : rows_) {
    std::vector<double> numbers(static_cast<std::size_t>(r.table_elements));
    for (double& x : numbers) x = random.uniform(-1, 1);
    std::vector<std::int32_t> rows(static_cast<std::size_t>(r.rows));
    for (std::int32_t& row : rows)
      row = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(r.table_rows)));
    executor.write(plan_, r.table, RankId{0}, numbers);
    executor.write(plan_, r.index, RankId{0}, rows);
  }
  executor.execute(plan_, {});
}

}  // namespace orrery
