// SPDX-License-Identifier: Apache-2.0
#include "sim/base/random.hpp"

#include <bit>
#include <cmath>
#include <numbers>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// One step of splitmix64 (Steele, Lea and Flood): spreads similar seeds over the whole state.
std::uint64_t splitmix64(std::uint64_t& x) {
  x += 0x9E3779B97F4A7C15;
  std::uint64_t z = x;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

/// Poisson by multiplying uniforms until the product falls below e^-mean (Knuth); `mean` + 1 uniforms on average.
std::int64_t small_poisson(Random& random, double mean) {
  const double limit = std::exp(-mean);
  std::int64_t count = 0;
  for (double product = random.uniform(); product > limit; product *= random.uniform()) ++count;
  return count;
}

/// Poisson by transformed rejection (Hörmann 1993, algorithm PTRS), for means of 10 and more. The constants are the
/// paper's.
std::int64_t large_poisson(Random& random, double mean) {
  const double b = 0.931 + 2.53 * std::sqrt(mean);
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const double v_r = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = random.uniform() - 0.5;
    const double v = 1 - random.uniform();
    const double us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + mean + 0.43);
    if (us >= 0.07 && v <= v_r) return static_cast<std::int64_t>(k);
    if (k < 0 || (us < 0.013 && v > us)) continue;
    const double left = std::log(v * inverse_alpha / (a / (us * us) + b));
    if (left <= k * std::log(mean) - mean - std::lgamma(k + 1)) return static_cast<std::int64_t>(k);
  }
}

}  // namespace

Random::Random(std::uint64_t seed, std::uint64_t stream) {
  std::uint64_t spread = stream;
  std::uint64_t x = seed ^ splitmix64(spread);
  for (std::uint64_t& word : state_) word = splitmix64(x);
}

std::uint64_t Random::bits() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

std::uint64_t Random::below(std::uint64_t n) {
  if (n == 0) bug("a random number below zero");
  const std::uint64_t excess = (0 - n) % n;  // 2^64 mod n: the lowest values that would come once too often
  std::uint64_t x = bits();
  while (x < excess) x = bits();
  return x % n;
}

double Random::normal(double mean, double deviation) {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return mean + deviation * radius * std::cos(2 * std::numbers::pi * uniform());
}

double Random::exponential(double mean) { return -mean * std::log(1 - uniform()); }

std::int64_t Random::poisson(double mean) {
  constexpr double kLargeMean = 30;
  if (!(mean >= 0)) bug("a Poisson distribution with a negative mean");
  return mean < kLargeMean ? small_poisson(*this, mean) : large_poisson(*this, mean);
}

RandomLeap::RandomLeap(int log2) {
  for (std::size_t bit = 0; bit < images_.size(); ++bit) {
    Random one{0};
    one.state_ = {};
    one.state_[bit / 64] = std::uint64_t{1} << bit % 64;
    one.bits();
    images_[bit] = one.state_;
  }
  for (int i = 0; i < log2; ++i) {
    std::array<Random::State, 256> twice;
    for (std::size_t bit = 0; bit < images_.size(); ++bit) twice[bit] = image(images_[bit]);
    images_ = twice;
  }
}

Random::State RandomLeap::image(const Random::State& state) const {
  Random::State sum{};
  for (std::size_t bit = 0; bit < images_.size(); ++bit) {
    const std::uint64_t taken = 0 - (state[bit / 64] >> bit % 64 & 1);  // all bits, or none
    for (std::size_t w = 0; w < sum.size(); ++w) sum[w] ^= images_[bit][w] & taken;
  }
  return sum;
}

void RandomLeap::operator()(Random& random) const { random.state_ = image(random.state_); }

}  // namespace orrery
