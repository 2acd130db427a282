// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/speculation/pass.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/strategy/kv_cache.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {
namespace {

ParameterStorage::Options storage_of(const Model& m, DType dtype) {
  ParameterStorage::Options o{.dtype = dtype, .separate = true, .peer = {}, .data = {}, .parts = {}, .ties = {}};
  HeldPart all{kEmbeddingPart, 0, 1, {}};
  for (std::size_t i = 0; i < m.parameters.size(); ++i) all.parameters.push_back(ParameterId{i});
  o.parts.push_back(std::move(all));
  return o;
}

Arrangements one_rank(PlanBuilder& b, const Model& m, std::int64_t batch, std::int64_t rows) {
  return make_arrangements(b, m, {.batch = batch, .sequence = rows}, {}, {Roles{}});
}

/// Numbers of a token in one tensor of a cache.
std::int64_t cache_columns(const Attention& a) {
  if (const auto* l = std::get_if<LatentAttention>(&a.projections)) return l->kv_rank + l->rope_dim;
  return a.kv_heads * a.qk_dim;
}

}  // namespace

SpeculationPass::SpeculationPass(const Source& s, CacheUse use, std::int64_t rows, const std::string& name)
    : source{s},
      builder{s.model.name + "." + name},
      arrangements{one_rank(builder, s.model, s.options.batch, rows)},
      weights{builder, s.model, arrangements, storage_of(s.model, dtype_of(s.options.dtype))},
      tape{builder, weights.targets()},
      layers{tape, arrangements, weights, {.sequence = rows, .dtype = dtype_of(s.options.dtype), .cache_use = use}} {}

/// Sequences that are done stay where they are while others go on: a tree more is all that stands behind them.
std::int64_t SpeculationPass::capacity() const {
  const SpeculationLayout& l = source.layout;
  return source.options.prompt + source.options.tokens + l.start_rows + l.depth +
         std::max(l.verified.back(), l.slots(std::ssize(l.frontier)));
}

TensorId SpeculationPass::input(std::string_view port, std::int64_t count) {
  const TensorId t = builder.tensor(fmt::format("input.{}.{}", port, count), Shape{count},
                                    {.dtype = DType::I32, .role = TensorRole::Input, .persistent = true});
  builder.port(std::string{port}, t);
  return t;
}

TensorId SpeculationPass::result(std::string_view port, std::int64_t count, DType type) {
  const TensorId t = builder.tensor(fmt::format("result.{}.{}", port, count), Shape{count},
                                    {.dtype = type, .role = TensorRole::Result, .persistent = true});
  builder.port(std::string{port}, t);
  return t;
}

TensorId SpeculationPass::state(std::string_view name, const Shape& shape) {
  return builder.tensor(name, shape, {.dtype = dtype(), .role = TensorRole::Activation, .persistent = true});
}

SpeculationCache SpeculationPass::cache_of(std::string_view name, const std::vector<const Attention*>& blocks,
                                           std::size_t places) {
  SpeculationCache c;
  const Attention& first = *blocks.front();
  const bool latent = std::holds_alternative<LatentAttention>(first.projections);
  c.cols = cache_columns(first);
  for (const Attention* a : blocks)
    if (cache_columns(*a) != c.cols || (!latent && a->v_dim != a->qk_dim))
      throw UserError{fmt::format("the blocks of {} keep keys and values of different sizes", source.model.name),
                      "speculation needs equal ones"};
  c.caches = std::ssize(blocks) * (latent ? 1 : 2);
  c.kv.capacity = capacity();
  const std::int64_t each = batch() * c.kv.capacity * c.cols;
  c.all = builder.tensor(name, Shape{c.caches, batch(), c.kv.capacity, c.cols},
                         {.dtype = dtype(), .role = TensorRole::KvCache, .persistent = true});
  c.kv.keys.resize(places), c.kv.values.resize(places);
  std::int64_t which = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    store_block(c.kv, i, *blocks[i], [&](std::string_view, const Shape& token) {
      Layout layout = Layout::contiguous(cache_shape(batch(), c.kv.capacity, token));
      layout.offset = which * each;
      return builder.view(c.all, fmt::format("{}.{}", name, which++), layout);
    });
  return c;
}

SpeculationCache SpeculationPass::model_cache() {
  std::vector<const Attention*> blocks;
  for (const Block& b : target().decoder) blocks.push_back(&b.attention);
  return cache_of("cache.model", blocks, blocks.size());
}

SpeculationCache SpeculationPass::draft_cache() {
  std::vector<const Attention*> blocks;
  for (const Block& b : source.drafter.blocks) blocks.push_back(&b.attention);
  return cache_of("cache.draft", blocks, blocks.size());
}

TensorId SpeculationPass::beside(std::string_view name, const std::vector<TensorId>& parts) {
  const std::int64_t rows = builder.plan().shape(parts.front())[0];
  std::int64_t width = 0, offset = 0;
  for (const TensorId p : parts) width += builder.plan().shape(p)[1];
  const TensorId all = layers.activation_tensor(name, Shape{rows, width});
  for (const TensorId p : parts) {
    const std::int64_t cols = builder.plan().shape(p)[1];
    const TensorId to =
        builder.view(all, name, Layout{.shape = Shape{rows, cols}, .strides = {width, 1}, .offset = offset});
    builder.add(fmt::format("{}.part", name), CopyRows{rows, cols, dtype()}, {reads(p), writes(to)});
    offset += cols;
  }
  return all;
}

TensorId SpeculationPass::run_blocks(TensorId tokens, TensorId positions, SpeculationCache& cache,
                                     const std::vector<int>& blocks, std::vector<TensorId>* taps) {
  NetworkInputs in;
  in.tokens = tokens, in.positions = positions;
  const NetworkSizes sizes{batch(), layers.sizes().sequence, 1};
  TensorId x = lower_span(layers, in, sizes, BlockSpan{.first = 0, .last = 0, .embedding = true, .head = false}, {});
  for (const int i : blocks) {
    x = layers.block(i, x, {}, &cache.kv);
    if (taps && std::find(source.drafter.taps.begin(), source.drafter.taps.end(), i) != source.drafter.taps.end())
      taps->push_back(x);
  }
  return x;
}

TensorId SpeculationPass::final_norm(TensorId x, std::int64_t rows) {
  return target().decoder_norm ? layers.row_norm("final_norm", x, rows, *target().decoder_norm) : x;
}

TensorId SpeculationPass::model_logits(TensorId x) {
  const Transformer& t = target();
  const std::int64_t rows = builder.plan().shape(x)[0];
  if (t.project_out) x = layers.product("project_out", x, rows, *t.project_out);
  return logits_by(t.output, "logits", x, rows);
}

TensorId SpeculationPass::logits_by(const Linear& output, std::string_view name, TensorId x, std::int64_t rows) {
  if (output.weight != target().output.weight) return layers.product(name, x, rows, output);
  x = layers.scale(fmt::format("{}.scale", name), x, target().output_scale);
  return layers.bounded_logits(layers.product(name, x, rows, output));
}

TensorId SpeculationPass::run_draft_blocks(TensorId x, SpeculationCache& cache, const SpeculationCache* read,
                                           TensorId contexts) {
  const std::int64_t rows = layers.rows();
  for (std::size_t i = 0; i < source.drafter.blocks.size(); ++i) {
    const Block& b = source.drafter.blocks[i];
    const std::string name = fmt::format("draft.layers.{}", i);
    layers.set_rotary("draft.rotary");
    const TensorId a =
        layers.attention(name + ".attention", layers.row_norm(name + ".attention_norm", x, rows, b.attention_norm),
                         b.attention, &cache.kv, static_cast<int>(i));
    x = layers.add(name + ".attention_residual", x, a);
    if (read) {
      const CrossRead& c = source.drafter.cross[i];
      const auto layer = static_cast<std::size_t>(c.layer);
      layers.set_rotary("rotary");
      x = layers.add(name + ".cross_residual", x,
                     layers.reading_attention(name + ".cross", layers.row_norm(name + ".cross_norm", x, rows, c.norm),
                                              c.attention, read->kv.keys[layer], read->kv.values[layer], contexts));
    }
    x = layers.add(
        name + ".ffn_residual", x,
        layers.mlp(name + ".mlp", layers.row_norm(name + ".ffn_norm", x, rows, b.ffn_norm), std::get<Mlp>(b.ffn)));
  }
  return x;
}

TensorId SpeculationPass::fused(TensorId states, TensorId tokens) {
  const TensorId both = beside("draft.state_and_token", {states, draft_embedding(tokens)});
  return layers.product("draft.fuse", both, builder.plan().shape(both)[0], *source.drafter.fuse);
}

TensorId SpeculationPass::draft_embedding(TensorId tokens) {
  const TokenEmbedding& table = source.drafter.tokens ? *source.drafter.tokens : *target().tokens;
  return layers.gather("draft.embedding", layers.weight(table.table), tokens, builder.plan().shape(tokens).elements());
}

TensorId SpeculationPass::draft_logits(TensorId x, std::int64_t rows) {
  if (source.drafter.norm) x = layers.row_norm("draft.norm", x, rows, *source.drafter.norm);
  return logits_by(source.drafter.output, "draft.logits", x, rows);
}

TensorId SpeculationPass::head_state(std::string_view name, const DraftHead& head, TensorId inputs, TensorId state) {
  const std::int64_t rows = builder.plan().shape(inputs)[0], cols = head.residual.out;
  const TensorId inner = layers.product(fmt::format("{}.linear", name), inputs, rows, head.residual);
  return layers.add(fmt::format("{}.residual", name), state,
                    layers.activation(fmt::format("{}.act", name), ActivationKind::Silu, inner, rows, cols));
}

TensorId SpeculationPass::cell_state(TensorId states, TensorId tokens, std::int64_t rows) {
  const DraftCell& c = *source.drafter.cell;
  const std::int64_t heads = c.heads, dim = c.q.out / heads, n = rows * heads;
  const TensorId e = layers.gather("cell.token", layers.weight(target().output.weight), tokens, rows);
  const auto per_head = [&](TensorId x) { return builder.view(x, "cell.heads", Layout::contiguous(Shape{n, dim})); };
  const auto projected = [&](std::string_view name, TensorId x, const Linear& l) {
    return per_head(layers.product(name, x, rows, l));
  };
  const TensorId q = layers.row_norm("cell.q_norm",
                                     projected("cell.q", layers.row_norm("cell.norm", states, rows, c.norm), c.q), n,
                                     c.q_norm),
                 k = layers.row_norm("cell.k_norm", projected("cell.k", e, c.k), n, c.k_norm),
                 v = projected("cell.v", e, c.v);
  const TensorId cosine = layers.activation_tensor("cell.cosine", Shape{n}),
                 gated = layers.activation_tensor("cell.gated", Shape{rows, heads * dim});
  builder.add("cell.cosine", RowDot{n, dim, dtype()}, {reads(q), reads(k), writes(cosine)});
  // Rows of unit mean square: their product over `dim` is the cosine.
  builder.add("cell.gate",
              ScaleRows{.rows = n, .cols = dim, .factor = 1.0 / double(dim), .by_row = true, .dtype = dtype()},
              {reads(v), reads(cosine), writes(per_head(gated))});
  return layers.add("cell.residual", states, gated);
}

std::int64_t SpeculationPass::feature_width() const {
  return target().hidden * (source.drafter.taps.empty() ? 1 : std::ssize(source.drafter.taps));
}

bool SpeculationPass::keeps_features() const { return source.drafter.reads_states() || !source.drafter.heads.empty(); }

TensorId SpeculationPass::features() {
  return state("features", Shape{batch() * source.layout.verified.back(), feature_width()});
}

TensorId SpeculationPass::draft_states() {
  return state("draft.states",
               Shape{batch() * (1 + source.layout.slots(std::ssize(source.layout.frontier))), target().hidden});
}

void SpeculationPass::store_features(TensorId states, std::int64_t rows) {
  const std::int64_t most = source.layout.verified.back(), width = feature_width();
  const TensorId to =
      builder.view(features(), "features.kept",
                   Layout{.shape = Shape{batch(), rows, width}, .strides = {most * width, width, 1}, .offset = 0});
  builder.add("features.keep", CopyRows{batch() * rows, width, dtype()}, {reads(states), updates(to)});
}

void SpeculationPass::store_states(TensorId states, std::int64_t rows, std::int64_t first) {
  Layout layout = Layout::contiguous(Shape{rows, target().hidden});
  layout.offset = first * target().hidden;
  builder.add("draft.states.keep", CopyRows{rows, target().hidden, dtype()},
              {reads(states), updates(builder.view(draft_states(), "draft.states.kept", layout))});
}

void SpeculationPass::offer_candidates(TensorId logits, std::int64_t rows, std::int64_t k, std::int64_t index,
                                       std::int64_t first) {
  const std::int64_t vocab = builder.plan().shape(logits)[1];
  const GenerateOptions& o = source.options;
  std::vector<Operand> operands{reads(logits),
                                writes(result(fmt::format("candidates.{}", index), rows * k, DType::I32)),
                                writes(result(fmt::format("probabilities.{}", index), rows * k, dtype()))};
  if (source.layout.drawn) {
    const std::int64_t passes = source.drafter.method == DraftMethod::Medusa
                                    ? source.layout.depth
                                    : 1 + source.layout.slots(std::ssize(source.layout.frontier));
    Layout layout = Layout::contiguous(Shape{rows, vocab});
    layout.offset = first * vocab;
    const TensorId all = state("draft.distributions", Shape{batch() * passes, vocab});
    operands.push_back(updates(builder.view(all, "draft.distributions.kept", layout)));
  }
  builder.add("draft.candidates",
              DraftCandidates{.rows = rows,
                              .vocab = vocab,
                              .k = k,
                              .temperature = o.temperature,
                              .drawn = source.layout.drawn,
                              .seed = o.seed + 1000 + first,
                              .step = Extent{0, Symbol::Step},
                              .dtype = dtype()},
              operands);
}

void SpeculationPass::read_results(std::int64_t numbers) {
  std::vector<Operand> operands;
  for (const Port& p : builder.plan().ports)
    if (builder.plan().tensors[p.tensor.index()].role == TensorRole::Result) operands.push_back(reads(p.tensor));
  builder.add("read_results", HostWork{.bytes = size_of(DType::I32, numbers)}, operands, Stream::Host);
}

void SpeculationPass::wait_for_host(Seconds time) {
  if (time > Seconds{0}) builder.add("host", HostWork{.pause = time}, {}, Stream::Host);
}

Plan SpeculationPass::take(const WorkspaceModel* workspaces) {
  Plan plan = builder.take(workspaces);
  plan.purpose = {double(batch()), model_flops(plan)};
  return plan;
}

}  // namespace orrery
