// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "sim/strategy/workload.hpp"
#include "tests/reference_networks.hpp"

namespace orrery::testing {

/// Clips to a global norm, then AdamW; matrices decay, vectors do not.
struct ReferenceAdamW {
  double rate, beta1, beta2, epsilon, decay, clip;
  Values m, v;
  int step = 0;

  void update(Values& w, const Values& g) {
    ++step;
    double norm2 = 0;
    for (const auto& [name, values] : g)
      for (double x : values) norm2 += x * x;
    const double factor = clip > 0 ? std::min(1.0, clip / (std::sqrt(norm2) + 1e-6)) : 1.0;
    for (auto& [name, values] : w) {
      const bool matrix = name.find("norm") == std::string::npos && name.find("ln_") == std::string::npos &&
                          name.find("bias") == std::string::npos;
      Vec &mm = m[name], &vv = v[name];
      mm.resize(values.size()), vv.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double x = g.at(name)[i] * factor;
        mm[i] = beta1 * mm[i] + (1 - beta1) * x;
        vv[i] = beta2 * vv[i] + (1 - beta2) * x * x;
        const double mh = mm[i] / (1 - std::pow(beta1, step)), vh = vv[i] / (1 - std::pow(beta2, step));
        values[i] -= rate * (mh / (std::sqrt(vh) + epsilon) + (matrix ? decay : 0.0) * values[i]);
      }
    }
  }
};

inline ReferenceAdamW reference_adamw(const OptimizerOptions& o) {
  return {o.rate, o.beta1, o.beta2, o.epsilon, o.decay, o.clip, {}, {}};
}

}  // namespace orrery::testing
