// SPDX-License-Identifier: Apache-2.0
#include "sim/app/reproduce/optex_study.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numbers>

#include "kernels/host/dense.hpp"
#include "sim/base/random.hpp"

namespace orrery {
namespace {

using Numbers = std::vector<double>;
constexpr double kTurn = 2 * std::numbers::pi;

double norm2(const Numbers& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return sum;
}

double sphere(const Numbers& x, Numbers& g) {
  for (std::size_t i = 0; i < x.size(); ++i) g[i] = 2 * x[i];
  return norm2(x);
}

double rosenbrock(const Numbers& x, Numbers& g) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    const double a = x[i + 1] - x[i] * x[i], b = 1 - x[i];
    sum += 100 * a * a + b * b;
    g[i] += -400 * a * x[i] - 2 * b;
    g[i + 1] += 200 * a;
  }
  return sum;
}

double ackley(const Numbers& x, Numbers& g) {
  const double n = double(x.size()), root = std::sqrt(norm2(x) / n);
  double waves = 0;
  for (const double v : x) waves += std::cos(kTurn * v) / n;
  const double bowl = 20 * std::exp(-0.2 * root), dents = std::exp(waves);
  for (std::size_t i = 0; i < x.size(); ++i)
    g[i] = (root > 0 ? bowl * 0.2 * x[i] / (n * root) : 0) + dents * kTurn * std::sin(kTurn * x[i]) / n;
  return 20 + std::numbers::e - bowl - dents;
}

class Adam {
 public:
  Adam(std::size_t n, double rate) : rate_{rate}, m_(n), v_(n) {}

  void update(Numbers& x, const Numbers& g) {
    constexpr double kFirst = 0.9, kSecond = 0.999, kEpsilon = 1e-8;
    ++count_;
    const double m_part = 1 - std::pow(kFirst, count_), v_part = 1 - std::pow(kSecond, count_);
    for (std::size_t i = 0; i < x.size(); ++i) {
      m_[i] = kFirst * m_[i] + (1 - kFirst) * g[i];
      v_[i] = kSecond * v_[i] + (1 - kSecond) * g[i] * g[i];
      x[i] -= rate_ * m_[i] / m_part / (std::sqrt(v_[i] / v_part) + kEpsilon);
    }
  }

 private:
  double rate_;
  Numbers m_, v_;
  int count_ = 0;
};

/// Gradients at points, and what they say of the gradient at another one.
class Predictor {
 public:
  Predictor(std::int64_t history, double length, double noise) : most_{history}, length_{length}, noise_{noise} {}

  void keep(const Numbers& x, const Numbers& g) {
    points_.push_back(x), gradients_.push_back(g);
    if (std::ssize(points_) > most_) points_.pop_front(), gradients_.pop_front();
  }

  void fit() {
    const std::size_t n = points_.size();
    double roots = 0;
    for (const Numbers& p : points_) roots += std::sqrt(std::sqrt(norm2(p)));
    scale_ = n > 0 ? length_ * roots / double(n) : length_;
    factor_.assign(n * n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      const Numbers row = covariances(points_[i]);
      std::copy(row.begin(), row.end(), factor_.begin() + std::ptrdiff_t(i * n));
      factor_[i * n + i] += noise_;
    }
    kernels::cholesky(std::int64_t(n), factor_.data(), std::int64_t(n));
  }

  Numbers at(const Numbers& x) const {
    Numbers g(x.size());
    const auto n = std::ssize(points_);
    if (n < 2) return g;
    Numbers weights = covariances(x);
    for (const kernels::Triangle t : {kernels::Triangle::Lower, kernels::Triangle::LowerTransposed})
      kernels::solve_triangular<double>(
          {.triangle = t, .n = n, .rhs = 1, .l = factor_.data(), .ldl = n, .x = weights.data(), .ldx = 1});
    for (std::size_t j = 0; j < weights.size(); ++j)
      for (std::size_t i = 0; i < g.size(); ++i) g[i] += weights[j] * gradients_[j][i];
    return g;
  }

 private:
  Numbers covariances(const Numbers& x) const {
    Numbers k(points_.size());
    for (std::size_t j = 0; j < k.size(); ++j)
      kernels::covariances<double>(
          {.columns = std::ssize(x), .length = scale_, .a = x.data(), .h = points_[j].data(), .k = &k[j]});
    return k;
  }

  std::int64_t most_;
  double length_, noise_, scale_ = 1;
  std::deque<Numbers> points_, gradients_;
  Numbers factor_;
};

Numbers start_of(std::int64_t dimensions, std::uint64_t seed) {
  Random random{seed};
  Numbers x;
  for (std::int64_t i = 0; i < dimensions; ++i) x.push_back(random.normal());
  return x;
}

}  // namespace

std::string_view name_of(TestFunction f) {
  constexpr std::string_view names[] = {"sphere", "Rosenbrock", "Ackley"};
  return names[static_cast<int>(f)];
}

double evaluate(TestFunction f, const Numbers& x, Numbers& g) {
  g.assign(x.size(), 0);
  if (f == TestFunction::Sphere) return sphere(x, g);
  return f == TestFunction::Rosenbrock ? rosenbrock(x, g) : ackley(x, g);
}

double OptexStudy::plain_value(std::int64_t updates) const {
  Numbers x = start_of(dimensions, seed), g;
  Adam adam{x.size(), rate};
  for (std::int64_t i = 0; i < updates; ++i) {
    evaluate(function, x, g);
    adam.update(x, g);
  }
  return evaluate(function, x, g);
}

std::int64_t OptexStudy::iterations_to(double target, std::int64_t points, std::int64_t history, double length,
                                       std::int64_t most) const {
  Numbers x = start_of(dimensions, seed), g;
  Adam adam{x.size(), rate};
  Predictor predictor{history, length, noise};
  for (std::int64_t i = 1; i <= most; ++i) {
    predictor.fit();
    std::vector<Numbers> way{x};
    while (std::ssize(way) < points) {
      adam.update(x, predictor.at(x));
      way.push_back(x);
    }
    for (const Numbers& z : way) {
      evaluate(function, z, g);
      predictor.keep(z, g);
    }
    adam.update(x, g);
    if (evaluate(function, x, g) <= target) return i;
  }
  return 0;
}

double OptexStudy::speedup(std::int64_t updates, std::int64_t points, const OptexSettings& settings) const {
  std::vector<OptexStudy> studies(settings.starts, *this);
  std::vector<double> targets;
  for (std::size_t i = 0; i < studies.size(); ++i) {
    studies[i].seed = i + 1;
    targets.push_back(studies[i].plain_value(updates));
  }
  std::int64_t best = updates;
  // More than half of the starts have to do with less than the best so far; what the others need does not matter.
  const auto median = [&](double length, std::int64_t history) {
    std::vector<std::int64_t> took;
    std::size_t missed = 0;
    for (std::size_t i = 0; i < studies.size() && 2 * missed <= studies.size(); ++i) {
      took.push_back(studies[i].iterations_to(targets[i], points, history, length, best - 1));
      if (took.back() == 0) took.back() = updates, ++missed;
    }
    std::sort(took.begin(), took.end());
    return 2 * missed > studies.size() ? updates : took[took.size() / 2];
  };
  for (const double length : settings.lengths)
    for (const std::int64_t history : settings.histories) best = std::min(best, median(length, history));
  return double(updates) / double(best);
}

}  // namespace orrery
