// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/model.hpp"

namespace orrery {

/// What a parameter starts with when no weights are loaded: zeros, ones, or normal numbers that depend on the seed and
/// on which parameter it is alone, so that every strategy starts from the same network.
std::vector<double> initial_values(const Model& model, ParameterId parameter, std::uint64_t seed);

/// The same of one parameter after another, some of which are drawn ahead at once, on all cores.
class InitialWeights {
 public:
  InitialWeights(const Model& model, std::uint64_t seed) : model_{model}, seed_{seed} {}
  /// Each parameter once, in ascending order.
  std::vector<double> take(ParameterId parameter);

 private:
  void draw(std::size_t first);

  const Model& model_;
  std::uint64_t seed_;
  std::size_t first_ = 0;
  std::vector<std::vector<double>> drawn_;  // from `first_` on
};

}  // namespace orrery
