// SPDX-License-Identifier: Apache-2.0
#include "sim/app/split_meshes.hpp"

#include <algorithm>
#include <variant>

namespace orrery {
namespace {

constexpr std::int64_t kFewestTokens = 4096;  // of a part of a sequence that is split

std::vector<std::int64_t> divisors_of(std::int64_t n) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 1; i <= n; ++i)
    if (n % i == 0) all.push_back(i);
  return all;
}

}  // namespace

SplitBounds split_bounds(const Model& model, std::int64_t devices_per_node) {
  SplitBounds b;
  b.devices_per_node = devices_per_node;
  const auto* network = std::get_if<Transformer>(&model.network);
  if (network == nullptr) return b;
  b.layers = static_cast<std::int64_t>(network->encoder.size() + network->decoder.size());
  for (const auto* blocks : {&network->encoder, &network->decoder})
    for (const Block& block : *blocks)
      if (const auto* moe = std::get_if<MoE>(&block.ffn))
        b.experts = std::max(b.experts, static_cast<std::int64_t>(moe->experts.size()));
  return b;
}

std::vector<SplitMesh> split_meshes(std::int64_t ranks, std::int64_t batch, std::int64_t sequence,
                                    const SplitBounds& bounds) {
  std::vector<SplitMesh> all;
  for (const std::int64_t tp : divisors_of(ranks)) {
    if (tp > bounds.devices_per_node) continue;
    for (const std::int64_t pp : divisors_of(ranks / tp)) {
      if (pp > bounds.layers) continue;
      for (const std::int64_t cp : divisors_of(ranks / tp / pp)) {
        if (cp > 1 && sequence / cp < kFewestTokens) continue;
        const std::int64_t replicas = ranks / tp / pp / cp;
        if (batch % replicas != 0) continue;
        for (const std::int64_t ep : divisors_of(replicas))
          if (bounds.experts % ep == 0) all.push_back({pp, replicas / ep, ep, cp, tp});
      }
    }
  }
  return all;
}

}  // namespace orrery
