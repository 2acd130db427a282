// SPDX-License-Identifier: Apache-2.0
#include "sim/program/initial_weights.hpp"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

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

std::vector<double> InitialWeights::take(ParameterId parameter) {
  if (parameter.index() < first_ || parameter.index() >= first_ + drawn_.size()) draw(parameter.index());
  return std::move(drawn_[parameter.index() - first_]);
}

void InitialWeights::draw(std::size_t first) {
  constexpr std::int64_t kMostTogether = 1 << 26;  // numbers
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::future<std::vector<double>>> parts;
  std::int64_t numbers = 0;
  for (std::size_t i = first; i < model_.parameters.size() && parts.size() < cores; ++i) {
    numbers += model_.parameters[i].elements();
    if (i > first && numbers > kMostTogether) break;
    parts.push_back(
        std::async(std::launch::async, [this, i] { return initial_values(model_, ParameterId{i}, seed_); }));
  }
  first_ = first;
  drawn_.clear();
  for (auto& part : parts) drawn_.push_back(part.get());
}

}  // namespace orrery
