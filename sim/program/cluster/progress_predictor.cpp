// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/base/shuffle.hpp"
#include "sim/program/cluster/ones.hpp"

namespace orrery {
namespace {

constexpr std::size_t kFeatures = 5, kUnits = 64, kBatch = 8;
constexpr std::size_t kBiases = kFeatures * kUnits, kOut = kBiases + kUnits, kLast = kOut + kUnits;
constexpr float kRate = 1e-4f, kDecay = 1e-4f, kBeta1 = 0.9f, kBeta2 = 0.999f, kTiny = 1e-8f;
constexpr double kMostDone = 0.99;  // a density at 1 is none

// Of four numbers a vector, where doubles are two: learning is nearly all of the time that ONES' scheduler takes.
using Parameters = std::array<float, kLast + 1>;  // of units, feature by feature; theirs alone; outputs; its constant
using Units = std::array<float, kUnits>;
using Features = std::array<float, kFeatures>;

Features features(const ProgressRecord& r) {
  return {static_cast<float>(std::log(r.samples)), static_cast<float>(r.initial_loss), static_cast<float>(r.epochs),
          static_cast<float>(1 - r.loss / r.initial_loss), static_cast<float>(r.accuracy)};
}

/// ln of the part that was to come.
double log_rest(const ProgressRecord& r) { return std::log1p(-std::min(r.done, kMostDone)); }

/// By its continued fraction, cut where it leaves [-1, 1]: off by 1e-4 at most, and loops over it are vectors.
float tanh_of(float x) {
  const float c = std::clamp(x, -4.97f, 4.97f), q = c * c;
  return c * (135135 + q * (17325 + q * (378 + q))) / (135135 + q * (62370 + q * (3150 + 28 * q)));
}

Units units_of(const Parameters& p, const Features& f) {
  Units h;
  for (std::size_t u = 0; u < kUnits; ++u) h[u] = p[kBiases + u];
  for (std::size_t i = 0; i < kFeatures; ++i)
    for (std::size_t u = 0; u < kUnits; ++u) h[u] += p[i * kUnits + u] * f[i];
  for (float& x : h) x = tanh_of(x);
  return h;
}

double output_of(const Parameters& p, const Units& h) {
  constexpr std::size_t kSums = 8;  // one alone would wait for itself
  std::array<float, kSums> sums{};
  for (std::size_t u = 0; u < kUnits; u += kSums)
    for (std::size_t s = 0; s < kSums; ++s) sums[s] += p[kOut + u + s] * h[u + s];
  return std::accumulate(sums.begin(), sums.end(), double(p[kLast]));
}

}  // namespace

/// What learning reads of a record.
struct ProgressPredictor::Sample {
  Features features;
  double epochs = 0, log_rest = 0;
  double to_come = 0;  // epochs
};

namespace {

/// Adds the gradient of −log of the Beta density at what was done.
void add_gradient(const Parameters& p, const Features& f, double epochs, double log_rest, Parameters& gradient) {
  const Units h = units_of(p, f);
  const double z = output_of(p, h);
  if (z <= 0) return;
  const double beta = 1 + z;
  const auto d = static_cast<float>(digamma(beta) - digamma(epochs + beta) - log_rest);
  gradient[kLast] += d;
  Units dh;
  for (std::size_t u = 0; u < kUnits; ++u) {
    gradient[kOut + u] += d * h[u];
    dh[u] = d * p[kOut + u] * (1 - h[u] * h[u]);
    gradient[kBiases + u] += dh[u];
  }
  for (std::size_t i = 0; i < kFeatures; ++i)
    for (std::size_t u = 0; u < kUnits; ++u) gradient[i * kUnits + u] += dh[u] * f[i];
}

}  // namespace

double digamma(double x) {
  double sum = 0;
  for (; x < 6; x += 1) sum -= 1 / x;
  const double q = 1 / (x * x);
  return sum + std::log(x) - 0.5 / x - q * (1.0 / 12 - q * (1.0 / 120 - q * (1.0 / 252 - q * (1.0 / 240 - q / 132))));
}

struct ProgressPredictor::Network {
  Parameters p{}, m{}, v{};
  double power1 = 1, power2 = 1;
  bool is_started = false;

  explicit Network(Random& random) {
    const double first = 1 / std::sqrt(double(kFeatures)), second = 1 / std::sqrt(double(kUnits));
    for (std::size_t i = 0; i < kLast; ++i)
      p[i] = static_cast<float>(i < kOut ? random.uniform(-first, first) : random.uniform(-second, second));
  }

  void step(Parameters& gradient, std::size_t records) {
    power1 *= kBeta1, power2 *= kBeta2;
    const auto rate = static_cast<float>(kRate / (1 - power1)), scale = static_cast<float>(1 / (1 - power2)),
               share = 1 / static_cast<float>(records);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const float g = gradient[i] * share + kDecay * p[i];
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * g;
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
      p[i] -= rate * m[i] / (std::sqrt(v[i] * scale) + kTiny);
    }
    gradient.fill(0);
  }
};

ProgressPredictor::ProgressPredictor(const OnesOptions& options, std::uint64_t seed)
    : options_{options}, random_{seed, 11}, network_{std::make_unique<Network>(random_)} {}
ProgressPredictor::~ProgressPredictor() = default;

void ProgressPredictor::add(const std::vector<ProgressRecord>& records) {
  for (const ProgressRecord& r : records)
    samples_.push_back({features(r), r.epochs, log_rest(r), r.epochs * (1 / r.done - 1)});
}

void ProgressPredictor::learn() {
  if (samples_.empty()) return;
  if (!std::exchange(network_->is_started, true)) {
    double to_come = 0;
    for (const Sample& s : samples_) to_come += s.to_come;
    network_->p[kLast] = static_cast<float>(to_come / double(samples_.size()));
  }
  // The records of a pass: all, or as many as it may have by chance; in a new order each time.
  const std::size_t taken = std::min(samples_.size(), std::size_t(options_.records));
  Parameters gradient{};
  for (std::int64_t pass = 0; pass < options_.passes; ++pass) {
    draw_to_front(samples_, taken, random_);
    for (std::size_t first = 0; first < taken; first += kBatch) {
      const std::size_t end = std::min(taken, first + kBatch);
      for (std::size_t i = first; i < end; ++i)
        add_gradient(network_->p, samples_[i].features, samples_[i].epochs, samples_[i].log_rest, gradient);
      network_->step(gradient, end - first);
    }
  }
}

double ProgressPredictor::beta(const ProgressRecord& now) const {
  return 1 + std::max(0.0, output_of(network_->p, units_of(network_->p, features(now))));
}

double ProgressPredictor::loss(const std::vector<ProgressRecord>& records) const {
  double sum = 0;
  for (const ProgressRecord& r : records) {
    const double a = r.epochs, b = beta(r), x = std::min(r.done, kMostDone);
    sum -= (a - 1) * std::log(x) + (b - 1) * log_rest(r) + std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b);
  }
  return sum / double(records.size());
}

}  // namespace orrery
