// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace orrery {

/// Functions of many variables that optimisers are compared on: Σx²; Σ 100(x_{i+1} − x_i²)² + (1 − x_i)²; 20 + e −
/// 20·exp(−0.2·√(mean x²)) − exp(mean cos 2πx).
enum class TestFunction : std::uint8_t { Sphere, Rosenbrock, Ackley };
std::string_view name_of(TestFunction f);
/// Its value; the gradient goes to g.
double evaluate(TestFunction f, const std::vector<double>& x, std::vector<double>& g);

/// What of a prediction is tried, and from how many starts.
struct OptexSettings {
  std::vector<double> lengths;
  std::vector<std::int64_t> histories;
  std::uint64_t starts = 1;
};

/// Adam that goes `points` updates in an iteration, all but the last with gradients predicted from a history (OptEx,
/// arXiv 2402.11427), from a start drawn from a normal distribution.
struct OptexStudy {
  TestFunction function = TestFunction::Sphere;
  std::int64_t dimensions = 2000;
  double rate = 0.01, noise = 1e-3;
  std::uint64_t seed = 1;  // of the start

  /// What so many plain updates come to.
  double plain_value(std::int64_t updates) const;
  /// Iterations until the value is at most `target`; 0 where `most` of them are not enough. The kernel is Matérn 5/2 of
  /// points over `length` times the mean root of the norms of the history's.
  std::int64_t iterations_to(double target, std::int64_t points, std::int64_t history, double length,
                             std::int64_t most) const;
  /// How many times fewer iterations than `updates` do, in the median over starts, with the best of these lengths and
  /// histories.
  double speedup(std::int64_t updates, std::int64_t points, const OptexSettings& settings) const;
};

}  // namespace orrery
