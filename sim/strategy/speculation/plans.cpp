// SPDX-License-Identifier: Apache-2.0
// The plans of a speculative generation: prefill, the drafter's passes, verification.
#include "sim/strategy/speculation/plans.hpp"

#include <numeric>

#include "sim/strategy/indices.hpp"
#include "sim/strategy/speculation/pass.hpp"

namespace orrery {
namespace {

using Source = SpeculationPass::Source;

std::vector<int> all_blocks(const Transformer& t) {
  std::vector<int> all(t.decoder.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Which rows of the position table the prompt reads; none without a table.
TensorId prompt_positions(SpeculationPass& p) {
  const Transformer& t = p.target();
  if (t.positions.is_none()) return {};
  const std::int64_t b = p.batch(), n = p.source.options.prompt, first = t.position_offset;
  return p.layers.constant(fmt::format("positions.{}x{}", b, n), Shape{b * n}, DType::I32,
                           [=] { return repeated_range(first, 1, n, b); });
}

TensorId last_rows(SpeculationPass& p, TensorId x) {
  const std::int64_t b = p.batch(), n = p.source.options.prompt;
  const TensorId index = p.layers.constant(fmt::format("last_rows.{}x{}", b, n), Shape{b}, DType::I32,
                                           [=] { return repeated_range(n - 1, n, b, 1); });
  return p.layers.gather("last_rows", x, index, b);
}

/// What the drafter makes of the prompt; entries of its cache are made with states of the model, or with tokens.
void draft_prompt(SpeculationPass& p, TensorId tokens, TensorId states, const SpeculationCache& model) {
  const Drafter& d = p.source.drafter;
  if (d.blocks.empty()) return;
  SpeculationCache cache = p.draft_cache();
  TensorId x;
  if (d.fuse_states) states = p.layers.product("draft.fuse_states", states, p.layers.rows(), *d.fuse_states);
  if (d.fuse)
    x = p.fused(states, p.input("draft_tokens", p.layers.rows()));
  else
    x = d.reads_states() ? states : p.draft_embedding(tokens);
  p.run_draft_blocks(x, cache, d.cross.empty() ? nullptr : &model, {});
}

Plan prefill_plan(const Source& s, const WorkspaceModel* workspaces) {
  SpeculationPass p{s, CacheUse::Fill, s.options.prompt, "prefill"};
  p.builder.set_phase(Phase::Prefill);
  const TensorId tokens = p.input("tokens", p.layers.rows());
  SpeculationCache cache = p.model_cache();
  std::vector<TensorId> taps;
  const TensorId x = p.run_blocks(tokens, prompt_positions(p), cache, all_blocks(p.target()), &taps);
  const TensorId normed = p.final_norm(x, p.layers.rows()), last = last_rows(p, normed);
  const TensorId states = taps.empty() ? normed : p.beside("taps", taps);
  if (p.keeps_features()) p.store_features(taps.empty() ? last : last_rows(p, states), 1);
  draft_prompt(p, tokens, states, cache);
  const TensorId next = p.result("next_tokens", p.batch(), DType::I32);
  const GenerateOptions& o = s.options;
  p.builder.add("sample",
                Sample{.rows = o.batch,
                       .vocab = p.target().output.out,
                       .temperature = o.temperature,
                       .seed = o.seed,
                       .dtype = p.dtype()},
                {reads(p.model_logits(last)), writes(next)});
  p.read_results(o.batch);
  Plan plan = p.take(workspaces);
  plan.purpose.tokens = double(o.batch) * double(o.prompt);
  return plan;
}

/// The mask of a pass whose rows follow one another.
TensorId chain_mask(SpeculationPass& p, std::int64_t rows) {
  const std::int64_t b = p.batch();
  const TensorId parents = p.layers.constant(fmt::format("chain.{}x{}", b, rows), Shape{b * rows}, DType::I32,
                                             [=] { return repeated_range(-1, 1, rows, b); });
  return parents;
}

/// Tells the layers about the trees of the pass.
void set_tree(SpeculationPass& p, TensorId contexts, TensorId positions, TensorId parents, std::int64_t slots) {
  const std::int64_t b = p.batch(), rows = p.layers.sizes().sequence;
  const TensorId mask = p.layers.activation_tensor("tree_mask", Shape{b, rows, slots});
  p.builder.add("tree_mask", TreeMask{.batch = b, .rows = rows, .slots = slots, .dtype = p.dtype()},
                {reads(parents), writes(mask)});
  p.layers.set_tree({.slots = slots, .contexts = contexts, .positions = positions, .mask = mask});
}

/// Medusa: all heads at once on the state of the last token.
void start_heads(SpeculationPass& p) {
  const SpeculationLayout& l = p.source.layout;
  const TensorId state = p.layers.gather("draft.state", p.features(), p.input("sources", p.batch()), p.batch());
  std::int64_t numbers = 0;
  for (std::int64_t i = 0; i < l.depth; ++i) {
    const DraftHead& head = p.source.drafter.heads[static_cast<std::size_t>(i)];
    const std::string name = fmt::format("draft.heads.{}", i);
    const TensorId h = p.head_state(name, head, state, state);
    const std::int64_t k = l.choices[static_cast<std::size_t>(i)];
    p.offer_candidates(p.logits_by(head.output, name + ".logits", h, p.batch()), p.batch(), k, i, i * p.batch());
    numbers += 2 * p.batch() * k;
  }
  p.read_results(numbers);
}

/// Hydra: head `depth` on the state of the last token and the tokens of the path to a node of this depth.
TensorId hydra_logits(SpeculationPass& p, std::int64_t rows, std::int64_t depth) {
  const DraftHead& head = p.source.drafter.heads[static_cast<std::size_t>(depth)];
  const TensorId state = p.layers.gather("draft.state", p.features(), p.input("sources", rows), rows);
  const TensorId tokens = p.draft_embedding(p.input("path_tokens", rows * (depth + 1)));
  const TensorId path =
      p.builder.view(tokens, "draft.path", Layout::contiguous(Shape{rows, (depth + 1) * p.target().hidden}));
  const TensorId h = p.head_state("draft.head", head, p.beside("draft.state_and_path", {state, path}), state);
  return p.logits_by(head.output, "draft.logits", h, rows);
}

/// Clover: the cell from a state to that of the next token, and its head.
TensorId clover_logits(SpeculationPass& p, TensorId before, TensorId tokens, std::int64_t rows, std::int64_t depth,
                       std::int64_t first) {
  const DraftHead& head = p.source.drafter.heads[static_cast<std::size_t>(depth)];
  const TensorId state = p.cell_state(before, tokens, rows);
  p.store_states(state, rows, first);
  return p.logits_by(head.output, "draft.logits", p.head_state("draft.head", head, state, state), rows);
}

/// States behind the blocks of the drafter, or behind those of the model that it runs.
TensorId draft_blocks(SpeculationPass& p, TensorId tokens, TensorId positions, bool from_features) {
  const Drafter& d = p.source.drafter;
  const std::int64_t rows = p.layers.rows();
  SpeculationCache model;
  if (!d.layers.empty() || !d.cross.empty()) model = p.model_cache();
  if (!d.layers.empty()) return p.run_blocks(tokens, positions, model, d.layers, nullptr);
  SpeculationCache cache = p.draft_cache();
  TensorId x;
  if (d.reads_states()) {
    TensorId states =
        p.layers.gather("draft.taken", from_features ? p.features() : p.draft_states(), p.input("sources", rows), rows);
    if (from_features && d.fuse_states) states = p.layers.product("draft.fuse_states", states, rows, *d.fuse_states);
    x = d.fuse ? p.fused(states, tokens) : states;
  } else {
    x = p.draft_embedding(tokens);
  }
  if (d.cross.empty()) return p.run_draft_blocks(x, cache, nullptr, {});
  return p.run_draft_blocks(x, cache, &model, p.input("contexts", p.batch()));
}

/// The logits that rows of a drafter with blocks give, its states kept for deeper levels.
TensorId block_logits(SpeculationPass& p, TensorId x, std::int64_t rows, std::int64_t first) {
  if (p.source.drafter.reads_states()) p.store_states(x, rows, first);
  if (!p.source.drafter.layers.empty()) return p.model_logits(p.final_norm(x, rows));
  return p.draft_logits(x, rows);
}

Plan start_plan(const Source& s, const WorkspaceModel* workspaces) {
  const std::int64_t rows = s.drafter.has_cache() ? s.layout.start_rows : 1;
  SpeculationPass p{s, CacheUse::Tree, rows, "draft"};
  p.builder.set_phase(Phase::Decode);
  p.wait_for_host(s.options.speculate->host.level);
  const std::int64_t b = p.batch(), k = s.layout.choices.front();
  if (s.drafter.method == DraftMethod::Medusa) {
    start_heads(p);
    return p.take(workspaces);
  }
  TensorId logits;
  if (s.drafter.method == DraftMethod::Hydra) {
    logits = hydra_logits(p, b, 0);
  } else {
    const bool of_states = s.drafter.reads_states() && !s.drafter.fuse;  // these alone make an entry
    const TensorId tokens = of_states ? TensorId{} : p.input("draft_tokens", b * rows),
                   positions = p.input("draft_positions", b * rows);
    set_tree(p, p.input("draft_contexts", b), positions, chain_mask(p, rows), rows);
    TensorId x = draft_blocks(p, tokens, positions, true);
    if (rows > 1) x = p.layers.gather("draft.last", x, p.input("last", b), b);
    logits = s.drafter.cell ? clover_logits(p, x, p.input("root_tokens", b), b, 0, 0) : block_logits(p, x, b, 0);
  }
  p.offer_candidates(logits, b, k, 0, 0);
  p.read_results(2 * b * k);
  return p.take(workspaces);
}

/// Candidates for the children of the nodes of a depth that are expanded.
Plan level_plan(const Source& s, std::int64_t depth, const WorkspaceModel* workspaces) {
  const SpeculationLayout& l = s.layout;
  const std::int64_t width = l.frontier[static_cast<std::size_t>(depth - 1)],
                     k = l.choices[static_cast<std::size_t>(depth)], first = first_draft_row(l, s.options.batch, depth);
  SpeculationPass p{s, CacheUse::Tree, width, fmt::format("draft.{}", depth)};
  p.builder.set_phase(Phase::Decode);
  p.wait_for_host(s.options.speculate->host.level);
  const std::int64_t b = p.batch(), rows = b * width;
  TensorId logits;
  if (s.drafter.method == DraftMethod::Hydra) {
    logits = hydra_logits(p, rows, depth);
  } else {
    const TensorId tokens = p.input("draft_tokens", rows);
    if (s.drafter.cell) {
      const TensorId before = p.layers.gather("draft.taken", p.draft_states(), p.input("sources", rows), rows);
      logits = clover_logits(p, before, tokens, rows, depth, first);
    } else {
      const TensorId positions = p.input("draft_positions", rows);
      const std::int64_t slots = l.slots(depth);
      set_tree(p, p.input("draft_contexts", b), positions, p.input("draft_parents", b * slots), slots);
      logits = block_logits(p, draft_blocks(p, tokens, positions, false), rows, first);
    }
  }
  p.offer_candidates(logits, rows, k, 0, first);
  p.read_results(2 * rows * k);
  return p.take(workspaces);
}

void accept(SpeculationPass& p, TensorId logits, TensorId tokens, TensorId parents, std::int64_t nodes,
            SpeculationCache& cache, TensorId contexts) {
  const SpeculationLayout& l = p.source.layout;
  const GenerateOptions& o = p.source.options;
  const std::int64_t b = p.batch(), vocab = p.target().output.out;
  const TensorId path = p.result("path", b * (l.depth + 1), DType::I32), next = p.result("next_tokens", b, DType::I32);
  std::vector<Operand> operands{reads(logits), reads(tokens), reads(parents)};
  if (l.drawn) {
    const std::int64_t passes =
        p.source.drafter.method == DraftMethod::Medusa ? l.depth : 1 + l.slots(std::ssize(l.frontier));
    operands.push_back(reads(p.state("draft.distributions", Shape{b * passes, vocab})));
    operands.push_back(reads(p.input("draft_rows", b * nodes)));
  }
  operands.push_back(writes(path));
  operands.push_back(writes(next));
  p.builder.add("accept",
                AcceptTree{.batch = b,
                           .nodes = nodes,
                           .depth = l.depth,
                           .vocab = vocab,
                           .rule = o.temperature > 0 ? o.speculate->rule : AcceptanceRule::Greedy,
                           .temperature = o.temperature,
                           .epsilon = o.speculate->epsilon,
                           .delta = o.speculate->delta,
                           .drafts = l.drawn,
                           .seed = o.seed + 1,
                           .step = Extent{0, Symbol::Step},
                           .dtype = p.dtype()},
                operands);
  if (l.tree != TreeKind::Chain)
    p.builder.add("cache.compact",
                  CompactCache{.caches = cache.caches,
                               .batch = b,
                               .rows = l.depth,
                               .cols = cache.cols,
                               .capacity = cache.kv.capacity,
                               .dtype = p.dtype()},
                  {reads(contexts), reads(path), updates(cache.all)});
}

Plan verify_plan(const Source& s, std::int64_t nodes, const WorkspaceModel* workspaces) {
  SpeculationPass p{s, CacheUse::Tree, nodes, fmt::format("verify.{}", nodes)};
  p.builder.set_phase(Phase::Decode);
  const SpeculationHost& host = s.options.speculate->host;
  p.wait_for_host(host.round + double(s.options.batch) * host.sequence);
  const std::int64_t rows = p.layers.rows();
  const TensorId tokens = p.input("tokens", rows), positions = p.input("positions", rows),
                 parents = p.input("parents", rows), contexts = p.input("contexts", p.batch());
  set_tree(p, contexts, positions, parents, nodes);
  SpeculationCache cache = p.model_cache();
  std::vector<TensorId> taps;
  const TensorId x = p.run_blocks(tokens, positions, cache, all_blocks(p.target()), &taps);
  const TensorId normed = p.final_norm(x, rows);
  if (p.keeps_features()) p.store_features(taps.empty() ? normed : p.beside("taps", taps), nodes);
  accept(p, p.model_logits(normed), tokens, parents, nodes, cache, contexts);
  p.read_results(p.batch() * (s.layout.depth + 2));
  return p.take(workspaces);
}

}  // namespace

std::int64_t first_draft_row(const SpeculationLayout& l, std::int64_t batch, std::int64_t depth) {
  return depth == 0 ? 0 : batch * (1 + l.slots(depth - 1));
}

SpeculationPlans lower_speculation(const Model& model, const Drafter& drafter, const GenerateOptions& o,
                                   const SpeculationLayout& layout, const WorkspaceModel* workspaces) {
  const Source source{model, drafter, o, layout};
  SpeculationPlans plans{prefill_plan(source, workspaces), start_plan(source, workspaces), {}, {}};
  if (drafter.method != DraftMethod::Medusa)
    for (std::int64_t d = 1; d < layout.depth; ++d) plans.levels.push_back(level_plan(source, d, workspaces));
  for (const std::int64_t n : layout.verified) plans.verify.push_back(verify_plan(source, n, workspaces));
  return plans;
}

}  // namespace orrery
