// SPDX-License-Identifier: Apache-2.0
#include "sim/program/initial_weights.hpp"

#include "sim/base/random.hpp"

namespace orrery {

std::vector<double> initial_values(const Model& model, ParameterId parameter, std::uint64_t seed) {
  const Parameter& p = model[parameter];
  std::vector<double> out(static_cast<std::size_t>(p.elements()), p.init == Init::Ones ? 1.0 : 0.0);
  if (p.init != Init::Normal) return out;
  Random random{seed, parameter.index() + 1000};
  for (double& v : out) v = random.normal(0, p.deviation);
  return out;
}

}  // namespace orrery
