// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/layer_period.hpp"

#include <variant>

namespace orrery {
namespace {

/// Whether plans of two blocks do the same work.
bool alike(const Block& a, const Block& b) {
  return a.attention.window == b.attention.window && a.ffn.index() == b.ffn.index() &&
         a.attention.projections.index() == b.attention.projections.index();
}

/// How many blocks at the end are, each, like the one `period` before it.
std::int64_t repeated(const std::vector<Block>& blocks, std::size_t period) {
  std::int64_t count = 0;
  for (std::size_t i = blocks.size(); i-- > period && alike(blocks[i], blocks[i - period]);) ++count;
  return count;
}

}  // namespace

LayerPeriod period_of(const std::vector<Block>& blocks) {
  const auto n = static_cast<std::int64_t>(blocks.size());
  LayerPeriod best{.lead = 0, .period = n, .times = 1};
  for (std::int64_t p = 1; 2 * p <= n; ++p) {
    const std::int64_t times = repeated(blocks, static_cast<std::size_t>(p)) / p + 1;
    const std::int64_t fewest = best.times > 1 ? best.lead + 2 * best.period : n;
    if (times > 1 && n - times * p + 2 * p < fewest) best = {.lead = n - times * p, .period = p, .times = times};
  }
  return best;
}

Model first_layers(Model model, std::int64_t layers) {
  std::get<Transformer>(model.network).decoder.resize(static_cast<std::size_t>(layers));
  return model;
}

}  // namespace orrery
