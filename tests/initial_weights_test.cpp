// SPDX-License-Identifier: Apache-2.0
// Weights that nobody loads: drawn in pieces on all cores, they are those of one generator for each parameter.
#include <catch2/catch.hpp>

#include "sim/base/random.hpp"
#include "sim/program/initial_weights.hpp"
#include "tests/small_models.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("weights drawn in pieces are those of one stream for each parameter") {
  constexpr std::uint64_t kSeed = 11;
  // The embedding has more numbers than several pieces, and no whole number of them.
  const Model model = gpt2_of({.hidden = 24, .inner = 96, .layers = 2, .heads = 3, .kv_heads = 3, .vocab = 10'001});
  InitialWeights initial{model, kSeed};
  std::size_t drawn = 0;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& p = model.parameters[i];
    INFO(p.name);
    std::vector<double> expected(static_cast<std::size_t>(p.elements()), p.init == Init::Ones ? 1.0 : 0.0);
    Random random{kSeed, i + 1000};
    if (p.init == Init::Normal)
      for (double& v : expected) v = random.normal(0, p.deviation);
    drawn = std::max(drawn, expected.size());
    CHECK(initial_values(model, ParameterId{i}, kSeed) == expected);
    if (i == 3) continue;  // a parameter that no plan holds
    const UnsetVector<double> taken = initial.take(ParameterId{i});
    CHECK(std::equal(taken.begin(), taken.end(), expected.begin(), expected.end()));
  }
  CHECK(drawn > 3u << 16);
}
