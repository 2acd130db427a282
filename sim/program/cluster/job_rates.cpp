// SPDX-License-Identifier: Apache-2.0
#include "sim/program/cluster/job_rates.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// Seconds of a step, and what a and s are multiplied by, over the seconds: rows of the least squares.
struct LawRow {
  double a, s;
};

std::vector<LawRow> rows_of(const JobTemplate& t) {
  std::vector<LawRow> rows;
  for (const RatePoint& p : t.rates) {
    const double seconds = double(p.batch) / p.samples_per_second;
    rows.push_back({double(p.batch) / double(p.gpus) / seconds, 2 * double(p.gpus - 1) / double(p.gpus) / seconds});
  }
  return rows;
}

/// 1, 2, 4, … of a node, the node, and 2, 4, 8, … nodes, up to all.
std::vector<std::int64_t> predicted_sizes(std::int64_t gpus, std::int64_t node) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t n = 1; n < std::min(node, gpus); n *= 2) sizes.push_back(n);
  for (std::int64_t n = std::min(node, gpus); n < gpus; n *= 2) sizes.push_back(n);
  sizes.push_back(gpus);
  return sizes;
}

}  // namespace

StepLaw fit_step_law(const JobTemplate& t) {
  double aa = 0, as = 0, ss = 0, a1 = 0, s1 = 0;
  for (const LawRow& r : rows_of(t)) aa += r.a * r.a, as += r.a * r.s, ss += r.s * r.s, a1 += r.a, s1 += r.s;
  StepLaw law{0, t.exchange ? t.exchange->base() : 0};
  const double determinant = aa * ss - as * as;
  if (!t.exchange && determinant > 1e-12 * aa * ss) law.exchange = std::max(0.0, (aa * s1 - as * a1) / determinant);
  law.sample = (a1 - law.exchange * as) / aa;
  if (!(law.sample > 0))
    throw UserError{"rates of " + t.name + " leave no time for samples", "give a shorter exchange"};
  return law;
}

JobRates::JobRates(std::vector<JobTemplate> templates, std::int64_t gpus, std::int64_t gpus_per_node,
                   StepSeconds predict)
    : templates_{std::move(templates)}, sizes_{predicted_sizes(gpus, gpus_per_node)}, predict_{std::move(predict)} {
  for (const JobTemplate& t : templates_) laws_.push_back(t.model.empty() ? fit_step_law(t) : StepLaw{});
}

double JobRates::samples_per_second(std::size_t type, std::int64_t gpus, std::int64_t batch) {
  const auto [at, fresh] = rates_.try_emplace({type, gpus, batch}, 0.0);
  if (fresh)
    at->second = double(batch) /
                 (templates_[type].model.empty() ? laws_[type].seconds(gpus, batch) : predicted(type, gpus, batch));
  return at->second;
}

double JobRates::epochs_per_second(const Job& job, std::int64_t gpus, std::int64_t batch) {
  return samples_per_second(job.type, gpus, batch) / double(job.samples) / epochs_factor(type(job), batch);
}

double JobRates::predicted(std::size_t type, std::int64_t gpus, std::int64_t batch) {
  const auto above = std::lower_bound(sizes_.begin(), sizes_.end(), gpus);
  if (above == sizes_.end()) bug("more GPUs than there are");
  const double share = double(batch) / double(gpus);
  const double seconds = between_batches(type, *above, share);
  if (*above == gpus) return seconds;
  const std::int64_t below = *(above - 1);
  const double part = double(gpus - below) / double(*above - below);
  return (1 - part) * between_batches(type, below, share) + part * seconds;
}

double JobRates::between_batches(std::size_t type, std::int64_t gpus, double batch) {
  const double rounds = std::max(1.0, std::ceil(batch / double(templates_[type].batch)));
  const double share = std::max(1.0, batch / rounds), low = std::floor(share), part = share - low;
  const auto step = [&](std::int64_t n) {
    const double whole = asked(type, n, static_cast<std::int64_t>(low));
    return part > 0 ? (1 - part) * whole + part * asked(type, n, static_cast<std::int64_t>(low) + 1) : whole;
  };
  return step(gpus) + (rounds > 1 ? (rounds - 1) * step(1) : 0);
}

double JobRates::asked(std::size_t type, std::int64_t gpus, std::int64_t batch) {
  const auto found = steps_.find({type, gpus, batch});
  if (found != steps_.end()) return found->second;
  const double seconds = predict_(templates_[type], gpus, batch);
  return steps_.emplace(Key{type, gpus, batch}, seconds).first->second;
}

}  // namespace orrery
