// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "sim/strategy/energonai.hpp"
#include "sim/strategy/offload/strategies.hpp"
#include "sim/strategy/optex.hpp"
#include "sim/strategy/parallel.hpp"
#include "sim/strategy/presets_data.hpp"
#include "sim/strategy/presets_expert.hpp"
#include "sim/strategy/presets_layers.hpp"
#include "sim/strategy/presets_pipeline.hpp"
#include "sim/strategy/presets_sequence.hpp"
#include "sim/strategy/presets_tensor.hpp"
#include "sim/strategy/single_device.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery {
namespace {

constexpr StrategyEntry kStrategies[] = {
    {"single", "the whole model on one device", make_single_device, single_device_options},
    named<kDdp>(),
    named<kZero1>(),
    named<kZero2>(),
    named<kZero3>(),
    named<kTensor>(),
    named<kOptimus2d>(),
    named<kTensor25d>(),
    named<kTensor3d>(),
    named<kRingSelfAttention>(),
    named<kRingAttention>(),
    named<kUlysses>(),
    named<kExpert>(),
    named<kFlexMoe>(),
    named<kLayerwise>(),
    {"energonai", "inference: non-blocking stages, packed rows, layers on a neighbour's memory", make_energonai,
     energonai_options},
    named<kGPipe>(),
    named<kOneFOneB>(),
    named<kInterleaved>(),
    named<kChimera>(),
    named<kZbH1>(),
    named<kZbV>(),
    named<kDualPipe>(),
    {"parallel", "all of these on one mesh: replicas, stages, split matrices and sequences, in any order",
     make_parallel, parallel_options},
    {"zero-offload", "optimizer states and the update on the host; gradients go down, new weights come up",
     make_zero_offload, zero_offload_options},
    {"zero-infinity", "weights and states on the host or a disk, block by block on the device", make_zero_infinity,
     zero_infinity_options},
    {"activation-offload", "activations wait on the host for their backward pass", make_activation_offload,
     activation_offload_options},
    {"patrickstar", "weights and states in chunks that move between device and host as the warm-up step foretells",
     make_patrickstar, patrickstar_options},
    {"gemini", "chunks by fixed shares, or as the trace of a step leaves room for them", make_gemini, gemini_options},
    {"elixir", "chunks in blocks of the device; their size and what the memory is spent on are searched", make_elixir,
     elixir_options},
    {"elixir-v1", "each operator's weights and states where they save most time per byte of the device", make_elixir_v1,
     elixir_v1_options},
    {"angel-ptm",
     "pages that move by one schedule over all life-times; states on the host or a disk, updated lock-free",
     make_angel_ptm, angel_ptm_options},
    {"cached-embedding", "embedding tables on the host, the rows of frequent ids in a cache on the device",
     make_cached_embedding, cached_embedding_options},
    {"memo", "activations of blocks in two buffers; part of the tokens waits on the host, the rest is computed again",
     make_memo, memo_options},
    {"optex", "steps at several points at once, which predicted gradients lead to; a rank per point", make_optex,
     optex_options},
};

}  // namespace

std::span<const StrategyEntry> strategies() { return kStrategies; }

const StrategyEntry& find_strategy(std::string_view name) {
  const auto* it = std::find_if(std::begin(kStrategies), std::end(kStrategies),
                                [&](const StrategyEntry& e) { return e.name == name; });
  if (it != std::end(kStrategies)) return *it;
  std::vector<std::string> known;
  for (const StrategyEntry& e : kStrategies) known.emplace_back(e.name);
  throw unknown_name("strategy", name, known);
}

}  // namespace orrery
