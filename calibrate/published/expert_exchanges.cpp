// SPDX-License-Identifier: Apache-2.0
#include "calibrate/published/expert_exchanges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "calibrate/fit.hpp"
#include "calibrate/log_spread.hpp"
#include "calibrate/published/kernels.hpp"
#include "calibrate/statistics.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kRanksPerNode = 8, kUsualSms = 20;
constexpr double kCovered = 0.88;                       // of rows left out, by the 90 % interval
constexpr double kSmallShare = 0.8;                     // of the rows, whose law tells how far larger ones may be off
constexpr std::size_t kGroups = 6;                      // that are left out in turn
constexpr double kFullAt[] = {12, 16, 20, 24, 32, 48};  // SMs that may fill links
constexpr double kDevices[] = {78, 108, 132, 148};      // SMs of devices

}  // namespace

ExpertExchangeRow read_expert_exchange_row(const CsvRow& row) {
  if (row.integer("n_nodes").value_or(1) > 1) return Skip{SkipReason::UnsupportedFeature, "experts on several nodes"};
  ExpertExchangeShape shape;
  if (row["mode"] == "low_latency")
    shape.mode = ExpertMode::LowLatency;
  else if (row["mode"] != "normal")
    return Skip{SkipReason::UnsupportedOp, std::string{row["mode"]}};
  Sizes sizes{row};
  shape.ranks = kRanksPerNode;
  shape.tokens = sizes["num_tokens"], shape.hidden = sizes["hidden"], shape.top_k = sizes["topk"];
  shape.experts = sizes["n_experts"];
  shape.sms = row.integer("sms").value_or(kUsualSms);
  if (!sizes.missing().empty()) return sizes.skip();
  if (shape.sms < 1) return Skip{SkipReason::Incomplete, "sms"};
  std::vector<PublishedExpertExchange> out;
  for (const auto& [direction, column] :
       {std::pair{ExpertDirection::Dispatch, "dispatch_us"}, std::pair{ExpertDirection::Combine, "combine_us"}})
    if (const auto us = row.number(column); us && *us > 0) {
      shape.direction = direction;
      out.push_back({shape, Seconds{*us * 1e-6}});
    }
  if (out.empty()) return Skip{SkipReason::NoMeasurement, "dispatch_us, combine_us"};
  return out;
}

namespace {

using Rows = std::vector<PublishedExpertExchange>;

double bytes_of(const PublishedExpertExchange& r) { return r.shape.bytes().base(); }

double log_error(const ExpertExchangeLaw& law, const PublishedExpertExchange& r) {
  return std::abs(std::log(r.measured / law.time(r.shape)));
}

void fit_spread(ExpertExchangeLaw& law, const Rows& rows, const std::vector<double>& errors) {
  std::vector<std::vector<double>> features;
  law.most_tokens = 1;
  for (const PublishedExpertExchange& r : rows) {
    const auto f = spread_features(double(r.shape.top_k), double(r.shape.tokens));
    features.emplace_back(f.begin(), f.end());
    law.most_tokens = std::max(law.most_tokens, r.shape.tokens);
  }
  law.spread = fit_log_spread(features, errors, kCovered);
}

/// By relative least squares, of exchanges whose links so many SMs fill.
ExpertExchangeLaw fit_law(const Rows& rows, double full) {
  ExpertExchangeLaw law{.mode = rows.front().shape.mode, .direction = rows.front().shape.direction, .coefficients = {}};
  law.full = full;
  law.reach = Bytes{0};
  std::vector<Equation> observations;
  for (const PublishedExpertExchange& r : rows) {
    const auto group = static_cast<std::uint32_t>(observations.size() % kGroups);
    observations.push_back({features_of(r.shape, full), r.measured.base(), 1, group});
    law.reach = std::max(law.reach, r.shape.bytes());
  }
  const FitResult fit = fit_relative(observations);
  for (const double c : fit.coefficients) law.coefficients.emplace_back(c);
  std::vector<double> errors;
  for (const double r : fit.residuals) errors.push_back(std::abs(r));
  law.deviation = quantile(errors, kCovered) / kNinetyPercent;
  fit_spread(law, rows, errors);
  return law;
}

/// Rows apart: the fifth with the most bytes, which a law of the others has to foretell.
struct Halves {
  Rows small, large;
};
Halves by_size(const Rows& rows) {
  std::vector<double> bytes;
  for (const PublishedExpertExchange& r : rows) bytes.push_back(bytes_of(r));
  const double edge = quantile(bytes, kSmallShare);
  Halves h;
  for (const PublishedExpertExchange& r : rows) (bytes_of(r) > edge ? h.large : h.small).push_back(r);
  return h;
}

/// The law of the small ones, with as many SMs as foretell the large ones best.
ExpertExchangeLaw law_of_small(const Halves& rows) {
  const bool is_normal = rows.small.front().shape.mode == ExpertMode::Normal;
  ExpertExchangeLaw best;
  double least = std::numeric_limits<double>::infinity();
  for (const double full : is_normal ? std::span<const double>{kFullAt} : std::span<const double>{kDevices}) {
    const ExpertExchangeLaw law = fit_law(rows.small, full);
    double sum = 0;
    for (const PublishedExpertExchange& r : rows.large) sum += log_error(law, r);
    if (sum < least) least = sum, best = law;
  }
  return best;
}

/// The least growth with which the intervals of a law of small exchanges hold this share of large ones.
double growth_of(const ExpertExchangeLaw& small, const Rows& large) {
  std::vector<double> needed;
  for (const PublishedExpertExchange& r : large) {
    const double beyond = std::log(r.shape.bytes() / small.reach), error = log_error(small, r) / kNinetyPercent;
    const double rest = error * error - small.deviation * small.deviation;
    if (beyond > 0) needed.push_back(std::sqrt(std::max(0.0, rest)) / std::max(1.0, beyond));
  }
  return quantile(needed, kCovered);
}

ExpertExchangeLaw law_of(const Rows& rows) {
  const Halves halves = by_size(rows);
  if (halves.large.empty()) return fit_law(rows, kUsualSms);
  const ExpertExchangeLaw small = law_of_small(halves);
  ExpertExchangeLaw law = fit_law(rows, small.full);
  law.growth = growth_of(small, halves.large);
  return law;
}

}  // namespace

ExpertExchangeModel fit_expert_exchange(const Rows& rows) {
  ExpertExchangeModel model;
  for (const EnumName<ExpertMode>& mode : enum_names(ExpertMode{}))
    for (const EnumName<ExpertDirection>& direction : enum_names(ExpertDirection{})) {
      Rows some;
      for (const PublishedExpertExchange& r : rows)
        if (r.shape.mode == mode.value && r.shape.direction == direction.value) some.push_back(r);
      if (!some.empty()) model.laws.push_back(law_of(some));
    }
  return model;
}

}  // namespace orrery
