// SPDX-License-Identifier: Apache-2.0
#include "sim/program/embedding/id_stream.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// ∫ x^−s from 1 to x. Near s = 1 it is log x, and the difference of powers would cancel.
double power_integral(double x, double s) {
  const double log_x = std::log(x), a = (1 - s) * log_x;
  return std::abs(a) > 1e-8 ? std::expm1(a) / (1 - s) : log_x * (1 + a / 2);
}

/// The share of a field's draws lies in (0, 1]: bisection of its logarithm between these finds any threshold.
constexpr double kLeastLogProbability = -80;

constexpr std::array<CategoricalField, 26> kCriteoKaggle = {{
    {1460, 1.86},  {583, 1.24},     {10131227, 0.87}, {2202608, 0.89}, {305, 2.47},     {24, 1.2},    {12517, 0.66},
    {633, 2.08},   {3, 1.2},        {93145, 0.65},    {5683, 0.75},    {8351593, 0.89}, {3194, 0.80}, {27, 2.6},
    {14992, 0.79}, {5461306, 0.90}, {10, 1.15},       {5652, 0.97},    {2173, 1.06},    {4, 1.2},     {7046547, 0.89},
    {18, 1.2},     {15, 2.25},      {286181, 1.01},   {105, 2.3},      {142572, 0.92},
}};
constexpr std::int64_t kLargeField = 2'000'000;

}  // namespace

double harmonic_sum(std::int64_t n, double exponent) {
  constexpr std::int64_t kOneByOne = 1000;
  double sum = 0;
  const std::int64_t first = std::min(n, kOneByOne);
  for (std::int64_t k = first; k >= 1; --k) sum += std::pow(static_cast<double>(k), -exponent);
  if (n <= first) return sum;
  const double s = exponent, a = static_cast<double>(first), b = static_cast<double>(n);
  const auto f = [s](double x) { return std::pow(x, -s); };
  const auto first_derivative = [&](double x) { return -s * f(x) / x; };
  const auto third_derivative = [&](double x) { return -s * (s + 1) * (s + 2) * f(x) / (x * x * x); };
  return sum + power_integral(b, s) - power_integral(a, s) + (f(b) - f(a)) / 2 +
         (first_derivative(b) - first_derivative(a)) / 12 - (third_derivative(b) - third_derivative(a)) / 720;
}

BoundedZipf::BoundedZipf(std::int64_t n, double exponent)
    : n_{n}, exponent_{exponent}, sum_{harmonic_sum(n, exponent)} {
  if (n < 1 || !(exponent >= 0)) bug("a Zipf distribution over no ranks, or with a negative exponent");
  low_ = integral(1.5) - 1;
  high_ = integral(static_cast<double>(n) + 0.5);
  always_ = 2 - inverse_integral(integral(2.5) - std::pow(2.0, -exponent));
}

double BoundedZipf::integral(double x) const { return power_integral(x, exponent_); }

double BoundedZipf::inverse_integral(double y) const {
  const double a = y * (1 - exponent_);
  return std::abs(a) > 1e-8 ? std::exp(std::log1p(a) / (1 - exponent_)) : std::exp(y * (1 - a / 2));
}

std::int64_t BoundedZipf::operator()(Random& random) const {
  if (exponent_ == 0) return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n_)));
  while (true) {
    const double u = high_ + random.uniform() * (low_ - high_);
    const double x = inverse_integral(u);
    const double k = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(n_));
    if (k - x <= always_ || u >= integral(k + 0.5) - std::pow(k, -exponent_)) return static_cast<std::int64_t>(k) - 1;
  }
}

double BoundedZipf::probability(std::int64_t rank) const {
  return std::pow(static_cast<double>(rank) + 1, -exponent_) / sum_;
}

std::int64_t BoundedZipf::ranks_above(double least) const {
  if (exponent_ == 0) return probability(0) >= least ? n_ : 0;
  const double ranks = std::pow(least * sum_, -1 / exponent_);
  return ranks >= static_cast<double>(n_) ? n_ : static_cast<std::int64_t>(ranks);
}

IdStream::IdStream(std::span<const CategoricalField> fields, std::uint64_t seed) : first_{0}, seed_{seed} {
  for (const CategoricalField& field : fields) {
    zipf_.emplace_back(field.rows, field.exponent);
    first_.push_back(first_.back() + field.rows);
  }
}

void IdStream::sample(std::int64_t index, std::span<std::int64_t> ids) const {
  Random random{seed_, static_cast<std::uint64_t>(index)};
  for (std::size_t f = 0; f < zipf_.size(); ++f) ids[f] = first_[f] + zipf_[f](random);
}

std::vector<std::int64_t> IdStream::batch(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count) * zipf_.size());
  for (std::int64_t i = 0; i < count; ++i)
    sample(first + i, std::span{ids}.subspan(static_cast<std::size_t>(i) * zipf_.size(), zipf_.size()));
  return ids;
}

std::vector<std::int64_t> IdStream::ranks_above(double probability) const {
  std::vector<std::int64_t> ranks;
  for (const BoundedZipf& zipf : zipf_) ranks.push_back(zipf.ranks_above(probability));
  return ranks;
}

std::vector<std::int64_t> IdStream::most_frequent(std::int64_t rows) const {
  if (rows >= this->rows()) return ranks_above(0);
  // Between these thresholds the number of rows above passes `rows`; what is left lies in between.
  double few = 1, many = kLeastLogProbability;
  for (int i = 0; i < 100; ++i) {
    const double middle = (few + many) / 2;
    const auto above = ranks_above(std::exp(middle));
    (std::accumulate(above.begin(), above.end(), std::int64_t{0}) <= rows ? few : many) = middle;
  }
  auto taken = ranks_above(std::exp(few));
  const auto next = ranks_above(std::exp(many));
  std::int64_t left = rows - std::accumulate(taken.begin(), taken.end(), std::int64_t{0});
  for (std::size_t f = 0; f < taken.size(); ++f) {
    const std::int64_t more = std::min(left, next[f] - taken[f]);
    taken[f] += more;
    left -= more;
  }
  return taken;
}

double IdStream::coverage(std::int64_t rows) const {
  const auto taken = most_frequent(rows);
  double covered = 0;
  for (std::size_t f = 0; f < zipf_.size(); ++f) covered += zipf_[f].coverage(taken[f]);
  return covered / static_cast<double>(zipf_.size());
}

std::int64_t IdStream::field_of(std::int64_t row) const {
  return std::upper_bound(first_.begin(), first_.end(), row) - first_.begin() - 1;
}

double IdStream::probability(std::int64_t row) const {
  const std::int64_t field = field_of(row);
  return zipf_[static_cast<std::size_t>(field)].probability(row - first_row(field));
}

std::vector<std::int64_t> unique_ids(std::vector<std::int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<CategoricalField> criteo_kaggle_fields(double large_fields) {
  std::vector<CategoricalField> fields{kCriteoKaggle.begin(), kCriteoKaggle.end()};
  for (CategoricalField& field : fields)
    if (field.rows > kLargeField) field.exponent *= large_fields;
  return fields;
}

}  // namespace orrery
