// SPDX-License-Identifier: Apache-2.0
// Plans simulated folded and expanded, and what differs between the two.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sim/base/yaml.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/fold.hpp"
#include "sim/model/load.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery::testing {

inline Model small_model() {
  return model_from_config(parse_json(R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1000,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5})",
                                      "small"),
                           "small");
}

/// One sample per replica and microbatch.
/// What a sample is.
enum class Samples { Text, Documents };

inline Plan lower(const std::string& strategy, std::int64_t replicas, std::int64_t microbatches, Recompute recompute,
                  Samples samples = Samples::Text) {
  TrainOptions o;
  o.batch = replicas * microbatches;
  o.microbatches = microbatches;
  o.sequence = 128;
  o.dtype = Precision::BF16;
  o.recompute = recompute;
  if (samples == Samples::Documents)
    o.packing = PackingOptions{.lengths = {.kind = LengthKind::Uniform, .least = 1, .most = 128}};
  return find_strategy("parallel").make(parse_yaml(strategy, "strategy"))->train_step(small_model(), o, nullptr);
}

struct LoweredCase {
  const char* strategy;
  std::int64_t replicas, microbatches;
  Recompute recompute = Recompute::None;
  Samples samples = Samples::Text;
};
inline Plan lower(const LoweredCase& c) {
  return lower(c.strategy, c.replicas, c.microbatches, c.recompute, c.samples);
}

inline Bindings first_step() {
  Bindings bindings;
  bindings[Symbol::Step] = 1;
  return bindings;
}

inline Timeline run(const Plan& plan, const CostModel& cost, const ResourceMap& resources, Expansion expansion) {
  return simulate(plan, first_step(), cost, resources, {.expansion = expansion});
}

using Times = std::map<std::tuple<std::uint32_t, std::uint32_t>, std::pair<std::int64_t, std::int64_t>>;  // rank, op

inline Times times_of(const Timeline& t) {
  Times out;
  for (const Span& s : t.spans) out[{s.rank.value, s.op.value}] = {s.start_ps, s.end_ps};
  return out;
}

/// Of each rank the first one that is alike.
inline std::vector<RankId> representatives(const Plan& plan, const CostModel& cost, const ResourceMap& resources) {
  const std::vector<std::uint32_t> alike = ranks_alike(plan, first_step(), cost, resources, plan.class_of_ranks());
  std::map<std::uint32_t, RankId> first;
  std::vector<RankId> out;
  for (std::size_t r = 0; r < alike.size(); ++r) out.push_back(first.try_emplace(alike[r], RankId{r}).first->second);
  return out;
}

inline std::size_t num_different(const std::vector<RankId>& representatives) {
  return std::set<RankId>(representatives.begin(), representatives.end()).size();
}

/// How many spans and peaks of all ranks differ from those of the rank that stands for them.
struct Differences {
  std::size_t spans = 0, peaks = 0;
  bool makespan = false;
  bool none() const { return spans == 0 && peaks == 0 && !makespan; }
};

inline Differences differences(const Plan& plan, const std::vector<RankId>& first, const Timeline& folded,
                               const Timeline& expanded) {
  Differences d;
  d.makespan = folded.makespan_ps != expanded.makespan_ps;
  const Times few = times_of(folded), all = times_of(expanded);
  for (const auto& [key, time] : all) {
    const auto it = few.find({first[std::get<0>(key)].value, std::get<1>(key)});
    d.spans += it == few.end() || it->second != time ? 1 : 0;
  }
  std::size_t ops = 0;
  for (const RankClass& c : plan.classes) ops += c.num_ops * std::size_t(c.size());
  d.spans += all.size() != ops ? 1 : 0;
  using Held = std::tuple<std::int64_t, std::int64_t, std::uint32_t>;
  std::map<std::pair<std::uint32_t, Tier>, Held> held;
  for (const Peak& p : folded.peaks) held[{p.rank.value, p.tier}] = {p.bytes, p.arena_bytes, p.op.value};
  for (const Peak& p : expanded.peaks)
    d.peaks += held[{first[p.rank.index()].value, p.tier}] != Held{p.bytes, p.arena_bytes, p.op.value} ? 1 : 0;
  return d;
}

}  // namespace orrery::testing
