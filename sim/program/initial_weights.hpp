// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <future>
#include <vector>

#include "sim/base/unset_vector.hpp"
#include "sim/model/model.hpp"

namespace orrery {

/// What a parameter starts with when no weights are loaded: zeros, ones, or normal numbers that depend on the seed and
/// on which parameter it is alone, so that every strategy starts from the same network.
std::vector<double> initial_values(const Model& model, ParameterId parameter, std::uint64_t seed);

/// The same of one parameter after another: while some are in use, the next are drawn on all cores, large ones in
/// pieces.
class InitialWeights {
 public:
  InitialWeights(const Model& model, std::uint64_t seed) : model_{model}, seed_{seed} {}
  /// Each parameter once, in ascending order.
  UnsetVector<double> take(ParameterId parameter);

 private:
  using Drawn = std::vector<UnsetVector<double>>;
  std::size_t end_of_batch(std::size_t first) const;
  std::future<Drawn> draw_later(std::size_t first) const;

  const Model& model_;
  std::uint64_t seed_;
  std::size_t first_ = 0;
  Drawn drawn_;  // from `first_` on
  std::future<Drawn> next_;
};

}  // namespace orrery
