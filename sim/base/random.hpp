// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace orrery {

/// Random numbers for what the simulation samples (arrivals, lengths, acceptance, routing): xoshiro256** (Blackman and
/// Vigna), seeded through splitmix64. The same seed and stream give the same numbers on every machine and compiler,
/// which <random>'s distributions do not promise. Passed by reference, never global.
class Random {
 public:
  /// Streams of one seed are independent of each other: one per request class, link, layer …
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0);

  /// 64 uniform bits.
  std::uint64_t bits();
  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform();
  /// Uniform in [low, high).
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform in 0 … n−1, without bias; n is at least 1.
  std::uint64_t below(std::uint64_t n);
  /// Normal with this mean and standard deviation (Box-Muller; two uniforms each).
  double normal(double mean = 0, double deviation = 1);
  /// Exponential with this mean: the gap between events that come at a rate of 1/mean.
  double exponential(double mean);
  /// The number of events in a unit of time when `mean` are expected. Exact; the work grows with the mean up to 30
  /// only.
  std::int64_t poisson(double mean);
  /// True with this probability.
  bool bernoulli(double probability) { return uniform() < probability; }

 private:
  friend class RandomLeap;
  using State = std::array<std::uint64_t, 4>;
  State state_;
};

/// Passes over 2^log2 calls of `bits` as fast as over a few: each is a linear map of the 256 bits of the state, and so
/// is what they come to. Pieces of one stream can be drawn at once that way.
class RandomLeap {
 public:
  explicit RandomLeap(int log2);
  void operator()(Random& random) const;

 private:
  Random::State image(const Random::State& state) const;

  std::array<Random::State, 256> images_;  // of the states with one bit
};

}  // namespace orrery
