// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit_runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "calibrate/fit.hpp"
#include "calibrate/fit_gpu.hpp"
#include "calibrate/statistics.hpp"
#include "hw_models/gpu_model.hpp"

namespace orrery {
namespace {

/// For a law of a variant, and of a whole kind or kernel: below twelve, features cannot be left out by what others are
/// predicted as.
constexpr std::size_t kLeastCases = 12, kLeastOfKind = 4;
constexpr double kWeightInPlan = 4;
constexpr double kEightTenths = 1.2816;  // standard deviations on either side that hold 80 %
constexpr double kLeastDeviation = 0.02;
constexpr double kHostBound = 40e-6;    // seconds: what is shorter, and stands alone, waits for the host to enqueue it
constexpr double kLongProduct = 50e-6;  // seconds: launches count little
constexpr std::size_t kLeastProducts = 8;

using Cases = std::vector<const RuntimeCase*>;

KernelLaw fit_kernel(const Cases& cases) {
  std::vector<Equation> equations;
  for (const RuntimeCase* c : cases) {
    const KernelFeatures f = kernel_features_of(c->work, c->bindings);
    equations.push_back({{f.begin(), f.end()}, c->seconds, c->in_plan ? kWeightInPlan : 1.0, c->group});
  }
  const FitResult fit = fit_relative(equations);
  KernelLaw law;
  for (std::size_t i = 0; i < kKernelFeatures; ++i)
    if (fit.coefficients[i] > 0) law.seconds[std::string{kernel_features()[i]}] = fit.coefficients[i];
  std::vector<double> sizes;
  for (const double r : fit.residuals) sizes.push_back(std::abs(r));
  law.points = static_cast<std::int64_t>(cases.size());
  law.median_error = median(sizes);
  law.p90_error = quantile(sizes, 0.9);
  law.deviation = std::max(kLeastDeviation, quantile(std::move(sizes), 0.8) / kEightTenths);
  return law;
}

/// A product, as fits of kernels see it.
KernelCase product_case(const RuntimeCase& c, const Gemm& g) {
  const std::string text = to_text(c.work);
  return {.row_id = text,
          .gpu = "gpu",
          .device = "gpu",
          .op = fmt::format("gemm {}", name_of(g.dtype)),
          .harness = "orrery",
          .source = "measured",
          .key = c.in_plan ? text + " in a plan" : text,
          .works = {c.work},
          .size = amount(c.work).flops.base(),
          .seconds = c.seconds,
          .in_plan = c.in_plan};
}

/// The rate of products in plans over that of products that stand alone, of those that arithmetic limits.
double sustained_clock(const GpuParameters& fitted, const std::vector<KernelCase>& products) {
  const GpuModel model{"", fitted};
  std::vector<double> rates;
  for (const KernelCase& c : products) {
    if (!c.in_plan || c.seconds < kLongProduct) continue;
    const OpCost cost = model.cost(c.works.front(), {}, {});
    const Amount a = amount(c.works.front());
    const bool by_arithmetic = a.flops / model.peak(std::get<Gemm>(c.works.front()).arithmetic()) >
                               2 * ((a.read + a.written) / fitted.memory_bandwidth);
    if (by_arithmetic) rates.push_back(cost.duration.base() / c.seconds);
  }
  return rates.size() < kLeastProducts ? fitted.sustained_clock : std::clamp(median(std::move(rates)), 0.5, 1.2);
}

void fit_products(GpuRuntime& runtime, const GpuParameters& device, const std::vector<RuntimeCase>& cases) {
  std::vector<KernelCase> alone, all;
  for (const RuntimeCase& c : cases) {
    const auto* g = std::get_if<Gemm>(&c.work);
    if (!g || g->narrow != Narrow::None || !device.peak.contains(std::string{name_of(g->arithmetic())}))
      continue;
    all.push_back(product_case(c, *g));
    if (!c.in_plan) alone.push_back(all.back());
  }
  GpuParameters p = device;
  p.runtime.reset();
  const bool knows_best_clock = !fit_gpu(p, alone, {}, HoldOut::Nothing).empty();
  p.sustained_clock = runtime.sustained_clock = knows_best_clock ? sustained_clock(p, all) : 1;
  p.laws = device.laws;
  for (const std::string& name : fit_gpu(p, all, {}, HoldOut::Nothing)) runtime.products[name] = p.laws.at(name);
}

}  // namespace

/// Whether it is the name of a kind, or of one of attention's kernels: what differs more than by types and sizes.
static bool is_kernel(const std::string& name) {
  const auto dots = std::count(name.begin(), name.end(), '.');
  return dots == 0 || (dots == 1 && name.starts_with(AttentionForward::kName));
}

/// Whether a longer name has the same cases: one law is enough.
static bool is_said_longer(const std::string& name, const Cases& cases, const std::map<std::string, Cases>& groups) {
  for (auto it = groups.upper_bound(name); it != groups.end() && it->first.starts_with(name + "."); ++it)
    if (it->second.size() == cases.size()) return true;
  return false;
}

/// Without those that stand alone and are short, of kinds that steps have.
static std::vector<RuntimeCase> telling(const std::vector<RuntimeCase>& all) {
  std::set<std::size_t> in_plans;
  for (const RuntimeCase& c : all)
    if (c.in_plan) in_plans.insert(c.work.index());
  std::vector<RuntimeCase> cases = all;
  std::erase_if(cases, [&](const RuntimeCase& c) {
    return !c.in_plan && c.seconds < kHostBound && in_plans.contains(c.work.index());
  });
  return cases;
}

void fit_runtime(GpuRuntime& runtime, const GpuParameters& device, const std::vector<RuntimeCase>& all) {
  const std::vector<RuntimeCase> cases = telling(all);
  std::map<std::string, Cases> groups;
  for (const RuntimeCase& c : cases)
    if (c.seconds > 0)
      for (const std::string& name : kernel_law_names(c.work)) groups[name].push_back(&c);
  runtime.kernels.clear();
  for (const auto& [name, of] : groups)
    if (is_kernel(name) ? of.size() >= kLeastOfKind : of.size() >= kLeastCases && !is_said_longer(name, of, groups))
      runtime.kernels[name] = fit_kernel(of);
  fit_products(runtime, device, cases);
}

}  // namespace orrery
