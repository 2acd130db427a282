// SPDX-License-Identifier: Apache-2.0
// Plans that do not train: a prefill, a piece of one, a decode step, a forward pass.
#include "sim/strategy/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/option_error.hpp"
#include "sim/strategy/forward_stage.hpp"
#include "sim/strategy/kv_cache.hpp"

namespace orrery {
namespace {

/// Which of the plans of a generation.
enum class Part : std::uint8_t { Chunk, Prefill, Decode };

/// Keys and values of the blocks of a stage, for all of its samples.
class CacheMaker {
 public:
  CacheMaker(ForwardStage& stage, const ForwardStep& step, const GenerateOptions& o)
      : b_{stage.builder()}, step_{step}, t_{stage.transformer()}, span_{stage.span()} {
    const bool pair = !t_.encoder.empty();
    whole_.capacity = pair ? o.tokens + 1 : o.prompt + o.tokens;
    const std::size_t ways = t_.ways ? static_cast<std::size_t>(t_.ways->count) : 1;
    const std::size_t n = t_.encoder.size() + t_.decoder.size() * ways;
    for (auto* list : {&whole_.keys, &whole_.values, &whole_.cross_keys, &whole_.cross_values}) list->resize(n);
    for (auto i = static_cast<std::size_t>(span_.first); i < static_cast<std::size_t>(span_.last); ++i)
      if (i >= t_.encoder.size())
        for (std::size_t j = 0; j < ways; ++j) add(i * ways + j, t_.decoder[i - t_.encoder.size()], o.prompt);
  }

  /// The part of microbatch m.
  KvCache of(std::int64_t m) {
    if (step_.work.microbatches == 1) return whole_;
    KvCache out = whole_;
    for (auto* list : {&out.keys, &out.values, &out.cross_keys, &out.cross_values})
      for (TensorId& t : *list) t = part(t, m);
    return out;
  }

 private:
  void add(std::size_t i, const Block& block, std::int64_t prompt) {
    const std::int64_t n = step_.samples();
    store_block(whole_, i, block.attention, [&](std::string_view what, const Shape& token) {
      return store(i, what, cache_shape(n, whole_.capacity, token));
    });
    if (!block.cross) return;
    whole_.cross_keys[i] = store(i, "cross_k", Shape{n, prompt, block.cross->kv_heads, block.cross->qk_dim});
    whole_.cross_values[i] = store(i, "cross_v", Shape{n, prompt, block.cross->kv_heads, block.cross->v_dim});
  }

  TensorId store(std::size_t i, std::string_view what, const Shape& shape) {
    const Quantised q = step_.work.quantised.cache;
    const TensorSpec spec{.dtype = type_of(q, step_.work.dtype), .role = TensorRole::KvCache, .persistent = true};
    const std::string name = fmt::format("cache.{}.{}", i, what);
    if (q != Quantised::None)
      b_.tensor(name + ".scales", Shape{shape.elements() / shape[shape.rank - 1]},
                {.dtype = DType::F16, .role = TensorRole::KvCache, .persistent = true});
    return b_.tensor(name, shape, spec);
  }

  TensorId part(TensorId t, std::int64_t m) {
    if (t.is_none()) return t;
    Shape shape = b_.plan().shape(t);
    shape.sizes[0] /= step_.work.microbatches;
    Layout layout = Layout::contiguous(shape);
    layout.offset = m * shape.elements();
    return b_.view(t, b_.plan().name_of(t), layout);
  }

  PlanBuilder& b_;
  const ForwardStep& step_;
  const Transformer& t_;
  BlockSpan span_;
  KvCache whole_;
};

/// Inputs of a decode step where prompts differ: the tokens that stand in the cache, of each sequence.
void add_contexts(ForwardStage& stage, const ForwardStep& step, std::vector<TensorId>& contexts) {
  PlanBuilder& b = stage.builder();
  const TensorId all = b.tensor("input.contexts", Shape{step.samples()},
                                {.dtype = DType::I32, .role = TensorRole::Input, .persistent = true});
  b.port("contexts", all, port_rows(step.slices()));
  for (std::int64_t m = 0; m < step.work.microbatches; ++m) contexts.push_back(stage.part_of(all, m));
}

/// Rows of the last valid tokens of padded prompts, of microbatch m.
TensorId last_valid(ForwardStage& stage, const ForwardStep& step, const std::vector<std::int64_t>& lengths,
                    std::int64_t m) {
  return stage.layers().rank_constant(
      fmt::format("last_valid.{}", m), Shape{step.slices().batch}, DType::I32,
      [slices = step.slices(), lengths, m](std::span<const std::int64_t> at) {
        std::vector<double> rows;
        for (const std::int64_t s : slices.samples(at, m))
          rows.push_back(double(std::int64_t(rows.size()) * slices.sequence + lengths[std::size_t(s)] - 1));
        return rows;
      });
}

class GenerationStage {
 public:
  GenerationStage(PlanBuilder& builder, const ForwardStep& step, const GenerateOptions& o, Part part,
                  std::int64_t number)
      : stage_{builder, step, number}, step_{step}, o_{o}, part_{part}, cache_{stage_, step, o} {}

  void run() {
    PlanBuilder& b = stage_.builder();
    const bool pair = !stage_.transformer().encoder.empty(), draws = stage_.is_last() && part_ != Part::Chunk;
    if (part_ == Part::Decode && pair) {
      NetworkInputs& in = stage_.inputs().front();
      in.bias_index = b.tensor("input.bias_index", Shape{1, o_.tokens + 1},
                               {.dtype = DType::I32, .role = TensorRole::Input, .persistent = true});
      b.port("bias_index", in.bias_index);
    }
    if (part_ == Part::Decode && !o_.lengths.empty()) add_contexts(stage_, step_, contexts_);
    b.set_phase(part_ == Part::Decode ? Phase::Decode : Phase::Prefill);
    if (draws) {
      logits_ = stage_.result("logits", 1, output_classes(step_.model), step_.work.dtype);
      next_ = stage_.result("next_tokens", 1, 0, DType::I32);
    }
    for (std::int64_t m = 0; m < step_.work.microbatches; ++m) pass(m);
    if (draws)
      b.add("read_tokens", HostWork{.bytes = size_of(DType::I32, step_.samples())}, {reads(next_)}, Stream::Host);
  }

 private:
  void pass(std::int64_t m) {
    KvCache cache = cache_.of(m);
    if (!contexts_.empty()) stage_.layers().set_contexts(contexts_[static_cast<std::size_t>(m)]);
    if (part_ == Part::Prefill && !o_.lengths.empty() && stage_.is_last())
      stage_.inputs()[static_cast<std::size_t>(m)].last = last_valid(stage_, step_, o_.lengths, m);
    const TensorId logits = stage_.pass(m, &cache, LogitRows::Last);
    if (!next_.is_none()) draw(stage_.all_classes(logits), m);
  }

  void draw(TensorId logits, std::int64_t m) {
    stage_.draw({.rows = step_.slices().batch,
                 .vocab = output_classes(step_.model),
                 .temperature = o_.temperature,
                 .top_k = o_.top_k,
                 .top_p = o_.top_p,
                 .seed = o_.seed,
                 .step = Extent{0, Symbol::Step},
                 .dtype = step_.work.dtype},
                logits, stage_.part_of(logits_, m), stage_.part_of(next_, m));
  }

  ForwardStage stage_;
  const ForwardStep& step_;
  const GenerateOptions& o_;
  Part part_;
  CacheMaker cache_;
  std::vector<TensorId> contexts_;
  TensorId logits_, next_;
};

/// Tokens of the last piece of a prompt.
std::int64_t last_piece(const GenerateOptions& o) {
  return o.chunk == 0 || o.chunk >= o.prompt ? o.prompt : (o.prompt - 1) % o.chunk + 1;
}

/// Plans differ in how many new tokens a pass has and in what attention does with the cache.
Plan generation_plan(const Model& model, const GenerateOptions& o, Part part, const ParallelOptions& parallel,
                     const WorkspaceModel* workspaces) {
  constexpr std::string_view kNames[] = {"chunk", "prefill", "decode"};
  const bool pair = !std::get<Transformer>(model.network).encoder.empty();
  const bool whole = part == Part::Prefill && last_piece(o) == o.prompt;
  // An encoder-decoder reads the whole prompt with its encoder; its decoder starts with one token.
  const std::int64_t piece = part == Part::Decode ? 1 : part == Part::Chunk ? o.chunk : last_piece(o);
  PlanBuilder b{fmt::format("{}.{}", model.name, kNames[static_cast<int>(part)]), parse_mesh(parallel.mesh)};
  const ForwardStep step = make_forward_step(b, model, parallel,
                                             {.batch = o.batch,
                                              .microbatches = o.microbatches,
                                              .sequence = pair ? o.prompt : piece,
                                              .target_sequence = 1,
                                              .dtype = dtype_of(o.dtype),
                                              .quantised = o.quantised,
                                              .cache_use = whole ? CacheUse::Fill : CacheUse::Extend});
  for (std::int64_t k = 0; k < step.stages(); ++k) GenerationStage{b, step, o, part, k}.run();
  Plan plan = b.take(workspaces);
  plan.purpose = {double(o.batch) * double(piece), model_flops(plan)};
  return plan;
}

void check_lengths(const std::vector<std::int64_t>& lengths, std::int64_t batch, std::int64_t most,
                   std::string_view what) {
  if (lengths.empty()) return;
  if (static_cast<std::int64_t>(lengths.size()) != batch)
    throw OptionError{{"lengths"},
                      fmt::format("{} lengths are given for a batch of {}", lengths.size(), batch),
                      "give one for each sample"};
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest != most)
    throw OptionError{{"lengths"},
                      fmt::format("the longest of the lengths is {}, {} is {}", longest, what, most),
                      "padding that nobody needs: make them equal"};
}

void check_generation(const Model& model, const GenerateOptions& o, const ParallelOptions& p) {
  const auto& t = std::get<Transformer>(model.network);
  check_lengths(o.lengths, o.batch, o.prompt, "prompt");
  if (!o.lengths.empty() && o.chunk > 0)
    throw OptionError{
        {"chunk", "lengths"}, "prompts of different lengths are read whole", "leave chunk or lengths out"};
  if (!t.encoder.empty() && (o.chunk > 0 || !o.lengths.empty() || o.microbatches > 1))
    throw OptionError{{"chunk", "lengths", "microbatches"},
                      fmt::format("{} has an encoder", model.name),
                      "chunk, lengths and microbatches are for models with a decoder alone"};
  const auto is_windowed = [](const Block& b) { return b.attention.window.has_value(); };
  if (!o.lengths.empty() && std::any_of(t.decoder.begin(), t.decoder.end(), is_windowed))
    throw OptionError{{"lengths"}, fmt::format("{} attends to a window", model.name), "leave lengths out"};
  const bool draws = o.temperature > 0;
  const Roles roles = roles_of(parse_mesh(p.mesh));
  if (draws && (roles.dp || roles.ep || p.data_attention || o.microbatches > 1))
    throw OptionError{{"temperature"},
                      "parts of a batch would draw the same numbers",
                      "use temperature 0 with dp, ep or microbatches"};
}

}  // namespace

GenerationPlans lower_generation(const Model& model, const GenerateOptions& o, const ParallelOptions& parallel,
                                 const WorkspaceModel* workspaces) {
  check_generation(model, o, parallel);
  GenerationPlans plans{generation_plan(model, o, Part::Prefill, parallel, workspaces),
                        generation_plan(model, o, Part::Decode, parallel, workspaces)};
  if (last_piece(o) < o.prompt) plans.chunk = generation_plan(model, o, Part::Chunk, parallel, workspaces);
  return plans;
}

namespace {

void check_inference(const Model& model, const InferOptions& o) {
  check_lengths(o.lengths, o.batch, o.sequence, "sequence");
  const auto* t = std::get_if<Transformer>(&model.network);
  const bool decodes = t && t->encoder.empty() && !t->decoder.empty();
  if ((o.last || !o.lengths.empty()) && !decodes)
    throw OptionError{
        {"last", "lengths"}, fmt::format("{} is no decoder alone", model.name), "last and lengths are for those"};
}

/// Where the last valid tokens of microbatch m stand among the rows that are computed.
TensorId last_rows(ForwardStage& stage, const ForwardStep& step, std::int64_t m) {
  std::vector<double> rows;
  std::int64_t packed = 0;
  for (std::int64_t b = 0; b < step.slices().batch; ++b) {
    const std::int64_t length = step.work.lengths[static_cast<std::size_t>(m * step.slices().batch + b)];
    rows.push_back(double((step.packed_head() ? packed : b * step.work.sequence) + length - 1));
    packed += length;
  }
  return stage.layers().constant(fmt::format("last.{}", m), Shape{step.slices().batch}, DType::I32,
                                 [rows] { return rows; });
}

/// The passes of one stage. Rows of the result are those that are computed.
void infer(ForwardStage& stage, const ForwardStep& step, const InferOptions& o) {
  PlanBuilder& b = stage.builder();
  const std::int64_t classes = output_classes(step.model);
  const std::int64_t each = o.last ? 1 : output_rows(step.model, {1, o.sequence, step.work.target_sequence});
  std::vector<std::int64_t> rows;
  for (std::int64_t m = 0; m < o.microbatches; ++m)
    rows.push_back(step.packed_head() && !o.last ? static_cast<std::int64_t>(step.valid_rows(m).size())
                                                 : step.slices().batch * each);
  TensorId kept;
  if (stage.is_last() && step.packed_head() && !o.last) {
    kept = b.tensor("logits", Shape{std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), classes},
                    {.dtype = step.work.dtype, .role = TensorRole::Result, .persistent = true});
    b.port("logits", kept);
  } else if (stage.is_last()) {
    kept = stage.result("logits", each, classes, step.work.dtype);
  }
  std::int64_t first = 0;
  for (std::int64_t m = 0; m < o.microbatches; first += rows[static_cast<std::size_t>(m++)]) {
    if (o.last && !step.work.lengths.empty() && stage.is_last())
      stage.inputs()[static_cast<std::size_t>(m)].last = last_rows(stage, step, m);
    const TensorId logits = stage.pass(m, nullptr, o.last ? LogitRows::Last : LogitRows::All);
    if (!stage.is_last()) continue;
    Layout part = Layout::contiguous(Shape{rows[static_cast<std::size_t>(m)], classes});
    part.offset = first * classes;
    b.add("logits.store", CopyRows{part.shape[0], classes, step.work.dtype},
          {reads(stage.all_classes(logits)), writes(o.microbatches == 1 ? kept : b.view(kept, "logits", part))});
  }
  stage.end();
}

}  // namespace

Plan lower_inference(const Model& model, const InferOptions& o, const ParallelOptions& parallel,
                     const WorkspaceModel* workspaces, const InferenceEngine& engine) {
  check_inference(model, o);
  PlanBuilder b{model.name + ".infer", parse_mesh(parallel.mesh)};
  const std::int64_t target = target_length(o.target_sequence, o.sequence);
  const ForwardStep step = make_forward_step(b, model, parallel,
                                             {.batch = o.batch,
                                              .microbatches = o.microbatches,
                                              .sequence = o.sequence,
                                              .target_sequence = target,
                                              .dtype = dtype_of(o.dtype),
                                              .quantised = o.quantised,
                                              .lengths = o.lengths,
                                              .packed = engine.packed && !o.lengths.empty(),
                                              .restored = engine.restored,
                                              .peer = engine.peer,
                                              .calls = engine.calls});
  if ((step.work.packed || !o.lengths.empty()) && step.slices().replicas() > 1)
    throw OptionError{{"lengths"},
                      "samples of different lengths lie on several ranks",
                      "use tp and pp, not dp, ep or data_attention"};
  for (std::int64_t k = 0; k < step.stages(); ++k) {
    ForwardStage stage{b, step, k};
    b.set_phase(Phase::Forward);
    infer(stage, step, o);
  }
  Plan plan = b.take(workspaces);
  plan.purpose = {double(o.batch * (o.last ? 1 : output_rows(model, {1, o.sequence, target}))), model_flops(plan)};
  return plan;
}

}  // namespace orrery
