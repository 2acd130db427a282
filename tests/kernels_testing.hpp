// SPDX-License-Identifier: Apache-2.0
// What the tests of the host kernels share: random values, exact workspaces, gradients by differences, counted
// allocations.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace orrery::kernels::testing {

/// Number of calls of malloc and its relatives in this program so far; operator new calls malloc.
std::int64_t allocations();

/// Calls a kernel and checks that it allocates nothing.
template <class F>
void run(F&& kernel) {
  const std::int64_t before = allocations();
  kernel();
  const std::int64_t after = allocations();
  CHECK(after - before == 0);
}

using Values = std::vector<double>;

/// Uniform in [low, high).
inline Values random_values(std::int64_t n, unsigned seed, double low = -1, double high = 1) {
  std::mt19937_64 generator{seed};
  Values x(static_cast<std::size_t>(n));
  for (double& v : x) v = low + (high - low) * static_cast<double>(generator() >> 11) * 0x1p-53;
  return x;
}

/// Uniform in [0, bound).
inline std::vector<std::int32_t> random_ids(std::int64_t n, std::int32_t bound, unsigned seed) {
  std::mt19937 generator{seed};
  std::vector<std::int32_t> x(static_cast<std::size_t>(n));
  for (auto& v : x) v = static_cast<std::int32_t>(generator() % static_cast<unsigned>(bound));
  return x;
}

template <class T>
std::vector<T> as(const Values& x) {
  return std::vector<T>(x.begin(), x.end());
}

/// An output that shows whether it was written: all NaN.
template <class T = double>
std::vector<T> poison(std::int64_t n) {
  return std::vector<T>(static_cast<std::size_t>(n), std::numeric_limits<T>::quiet_NaN());
}

/// ‖x − reference‖ / ‖reference‖, and infinity where either is not finite.
template <class T>
double distance(const std::vector<T>& x, const Values& reference) {
  REQUIRE(x.size() == reference.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - reference[i]) * (x[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  const double d = norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// ∂ loss / ∂ x_i = (loss(x_i + h) − loss(x_i − h)) / 2h, x being what `loss` reads.
template <class F>
Values numeric_gradient(Values& x, F&& loss, double h = 1e-5) {
  Values gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + h;
    const double above = loss();
    x[i] = kept - h;
    gradient[i] = (above - loss()) / (2 * h);
    x[i] = kept;
  }
  return gradient;
}

/// Aligned memory of exactly `bytes`, filled with NaN, between guards that a kernel must not touch.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes) : bytes_{bytes}, memory_(bytes + 3 * kGuard, char(-1)) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + kGuard;
    begin_ = memory_.data() + kGuard + (64 - address % 64) % 64;
  }
  void* data() { return begin_; }
  bool intact() const {
    for (const char* p = memory_.data(); p < memory_.data() + memory_.size(); ++p)
      if ((p < begin_ || p >= begin_ + bytes_) && *p != char(-1)) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  std::size_t bytes_;
  std::vector<char> memory_;
  char* begin_;
};

}  // namespace orrery::kernels::testing
