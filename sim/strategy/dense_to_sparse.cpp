// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/dense_to_sparse.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/base/random.hpp"

namespace orrery {

SparseGate DenseToSparseOptions::gate() const {
  return {.threshold = threshold,
          .tau_max = tau_max,
          .tau_min = tau_min,
          .updates = updates,
          .linear = decay == TemperatureDecay::Linear,
          .hard_from = hard_from.value_or(SparseGate::kNever),
          .weighs_plain = weights == GateWeights::Softmax,
          .update = Extent{update - 1, Symbol::Step}};
}

double expected_active(std::int64_t experts, double tau, double spread, double threshold) {
  constexpr int kTokens = 1 << 14;
  Random random{2112'14397};
  std::vector<double> g(static_cast<std::size_t>(experts));
  std::int64_t active = 0;
  for (int t = 0; t < kTokens; ++t) {
    double sum = 0;
    for (double& x : g) {
      const double logit = spread > 0 ? random.normal(0, spread) : 0;
      sum += x = std::exp((logit - std::log(random.exponential(1))) / tau);  // exponential: −ln u
    }
    active += std::count_if(g.begin(), g.end(), [&](double x) { return x > threshold * sum; });
  }
  return double(active) / kTokens;
}

void SparseGating::add(std::int64_t experts) {
  if (active.contains(experts)) return;
  active[experts] = options.is_hard() ? 1
                                      : expected_active(experts, options.gate().temperature(options.update),
                                                        options.spread, options.threshold);
}

std::int64_t SparseGating::rows(std::int64_t tokens, std::int64_t experts) const {
  return std::max<std::int64_t>(1, std::llround(double(tokens) * active.at(experts)));
}

std::int64_t SparseGating::room(std::int64_t tokens, std::int64_t experts) const {
  const std::int64_t worst = tokens * options.choices(experts);
  if (options.buffer <= 0) return worst;
  return std::min(worst, static_cast<std::int64_t>(std::ceil(options.buffer * double(rows(tokens, experts)))));
}

}  // namespace orrery
