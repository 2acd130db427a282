// SPDX-License-Identifier: Apache-2.0
// Gemini, the heterogeneous memory manager of Colossal-AI (Apache-2.0, colossalai/zero/gemini): chunks as PatrickStar's
// with two ways of placing them.
//   chunks  of a size that leaves least of them empty, among min_chunk … min_chunk + search_range in steps of
//           search_interval; parameters more than three deviations larger than the mean are left out of the search and
//           have chunks of their own where they do not fit
//   auto    weights come when they are needed and leave when the room is: at each op chunks may have steady · memory −
//           what lies beside them now and at the next op; who is needed last leaves first. Up to max_prefetch chunks
//           come ahead where there is room. The first step, which has no trace yet, gives chunks `warmup_share` of the
//           memory and evicts in order. Gradients go down as soon as a chunk has them all; the host updates.
//   static  shares that are fixed: of weights that replicas split (the rest stays gathered between the passes), of
//           chunks whose states and update are on the host, of chunks whose weights are there too and come for each
//           pass
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/option_error.hpp"
#include "sim/strategy/offload/chunk_moves.hpp"
#include "sim/strategy/offload/gather_cache.hpp"
#include "sim/strategy/offload/lifetime.hpp"
#include "sim/strategy/offload/strategies.hpp"

namespace orrery {
namespace {

enum class Placement : std::uint8_t { Static, Auto };
std::span<const EnumName<Placement>> enum_names(Placement) {
  static constexpr EnumName<Placement> names[] = {{Placement::Static, "static"}, {Placement::Auto, "auto"}};
  return names;
}

enum class GeminiStep : std::uint8_t { Warmup, Steady };
std::span<const EnumName<GeminiStep>> enum_names(GeminiStep) {
  static constexpr EnumName<GeminiStep> names[] = {{GeminiStep::Warmup, "warmup"}, {GeminiStep::Steady, "steady"}};
  return names;
}

struct GeminiOptions {
  ParallelOptions parallel;
  Placement placement = Placement::Static;
  std::int64_t chunk = 0, min_chunk = 32 << 20, search_range = 32 << 20, search_interval = 1024;
  HostMemory memory = HostMemory::Pinned;
  std::int64_t max_prefetch = 0;
  double shard_param = 1, offload_optim = 0, offload_param = 0;
  Bytes device_memory{0};
  double steady = 0.9, warmup_share = 0.2;
  GeminiStep step = GeminiStep::Steady;

  template <class V>
  void visit(V& v) {
    v.field("parallel", parallel, kParallelHelp);
    v.field("placement", placement, "by shares that are fixed, or by what the trace of a step leaves room for");
    v.field("chunk", chunk, "elements of a chunk; 0: the size that leaves least of its chunks empty", at_least(0));
    v.field("min_chunk", min_chunk, "the fewest elements that the search tries", at_least(1));
    v.field("search_range", search_range, "elements above min_chunk up to which it tries", at_least(0));
    v.field("search_interval", search_interval, "elements between two sizes that it tries, and their divisor",
            at_least(1));
    v.field("memory", memory, "host memory that copies go to and come from");
    v.field("max_prefetch", max_prefetch, "chunks that may come ahead of the op that needs them", at_least(0));
    v.field("shard_param", shard_param,
            "static: part of the weights that replicas split and gather for each pass; the rest is gathered once",
            between(0, 1));
    v.field("offload_optim", offload_optim, "static: part of the chunks whose states and update are on the host",
            between(0, 1));
    v.field("offload_param", offload_param,
            "static: part of the chunks whose weights are on the host; with `shard_param` and `offload_optim` 1",
            between(0, 1));
    v.field("device_memory", device_memory, "auto: memory of a device that the step may count on", at_least(Bytes{0}));
    v.field("steady", steady, "auto: part of it that is used", between(0, 1));
    v.field("warmup_share", warmup_share, "auto: part of it that chunks may have in the first step", between(0, 1));
    v.field("step", step, "auto: which step is lowered, the first one without a trace or one behind it");
  }
};

/// Sizes of updated tensors that the search ignores: above the mean by more than three deviations.
double largest_searched(const std::vector<std::int64_t>& sizes) {
  if (sizes.empty()) return 0;
  const double n = double(sizes.size());
  const double mean = std::accumulate(sizes.begin(), sizes.end(), 0.0) / n;
  double squares = 0;
  for (const std::int64_t s : sizes) squares += (double(s) - mean) * (double(s) - mean);
  return mean + 3 * std::sqrt(squares / n);
}

std::vector<std::int64_t> sizes_of(const Plan& plan, const Updates& updates) {
  std::vector<std::int64_t> out;
  for (const Update& u : updates.all) out.push_back(plan.shape(u.weight).elements());
  return out;
}

/// Elements of a chunk that stay empty when tensors are packed in order.
std::int64_t waste(const std::vector<std::int64_t>& sizes, std::int64_t chunk) {
  std::int64_t open = 0, empty = 0;
  for (const std::int64_t s : sizes) {
    if (s > chunk) continue;
    if (s > open) {
      empty += open;
      open = chunk;
    }
    open -= s;
  }
  return empty + open;
}

class Gemini final : public TierStrategy {
 public:
  explicit Gemini(GeminiOptions o) : TierStrategy{"gemini", o.parallel}, o_{std::move(o)} {}

 protected:
  Plan move_tensors(const Plan& lowered, const TrainOptions&, const WorkspaceModel* workspaces) const override {
    const bool keeps = o_.placement == Placement::Static && o_.shard_param < 1;
    const Plan kept = keeps ? keep_gathered(lowered, keep_share(1 - o_.shard_param), nullptr) : Plan{};
    return move_chunks(keeps ? kept : lowered, rules(), workspaces);
  }

 private:
  ChunkRules rules() const {
    return {.travel = {.memory = o_.memory,
                       .in = o_.max_prefetch > 0 ? Stream::CopyIn : Stream::Compute,
                       .out = Stream::Compute,
                       .early = true,
                       .keep_clean = o_.placement == Placement::Static,
                       .states = tier_of(o_.memory)},
            .lay_out = [this](const Plan& p, ClassId, const Updates& u) { return lay_out(p, u); },
            .decide = [this](const ChunkTrace& t) { return o_.placement == Placement::Auto ? fit(t) : share_out(t); }};
  }

  std::int64_t search(const std::vector<std::int64_t>& sizes) const {
    std::vector<std::int64_t> searched;
    const double limit = largest_searched(sizes);
    for (const std::int64_t s : sizes)
      if (double(s) <= limit) searched.push_back(s);
    std::int64_t least = o_.min_chunk;
    for (const std::int64_t s : searched) least = std::max(least, s);
    least = (least + o_.search_interval - 1) / o_.search_interval * o_.search_interval;
    std::int64_t best = least, least_waste = INT64_MAX;
    for (std::int64_t c = least; c <= least + o_.search_range; c += o_.search_interval)
      if (const std::int64_t w = waste(searched, c); w < least_waste) best = c, least_waste = w;
    return best;
  }

  ChunkLayout lay_out(const Plan& plan, const Updates& updates) const {
    const std::vector<std::int64_t> sizes = sizes_of(plan, updates);
    const std::int64_t chunk = o_.chunk > 0 ? o_.chunk : search(sizes);
    std::vector<bool> alone;
    for (const std::int64_t s : sizes) alone.push_back(o_.chunk == 0 && s > chunk);
    return lay_out_chunks(plan, updates, chunk, alone);
  }

  ChunkDecision fit(const ChunkTrace& trace) const {
    ChunkDecision out;
    out.places.resize(trace.layout.size());
    const bool first = o_.step == GeminiStep::Warmup;
    const double part = (first ? o_.warmup_share : o_.steady) * o_.device_memory.base();
    out.steps = trace.moving(
        out.places, [&](std::size_t s) { return static_cast<std::int64_t>(part) - (first ? 0 : trace.beside[s]); });
    out.cache = plan_cache(trace.weight_bytes, out.steps, first ? Eviction::Order : Eviction::Belady);
    if (!first) come_ahead(out.cache, trace.weight_bytes, out.steps, o_.max_prefetch);
    return out;
  }

  /// The first chunks go to the host, until their elements are the share asked for.
  ChunkDecision share_out(const ChunkTrace& trace) const {
    ChunkDecision out;
    out.places.resize(trace.layout.size());
    const double all = double(trace.layout.elements());
    double before = 0;
    for (std::size_t k = 0; k < out.places.size(); ++k) {
      const bool states = before < o_.offload_optim * all, weights = before < o_.offload_param * all;
      out.places[k] = {.weights_stay = !weights, .states_stay = !states};
      before += double(trace.layout.sizes[k]);
    }
    // What a pass needs comes for its first use there and leaves behind the last one.
    out.steps = trace.moving(out.places, [](std::size_t) { return INT64_MAX / 2; });
    out.cache = visit_per_pass(out.steps, trace.passes, trace.layout.size());
    come_ahead(out.cache, trace.weight_bytes, out.steps, o_.max_prefetch);
    return out;
  }

  GeminiOptions o_;
};

void check(const GeminiOptions& o) {
  if (o.placement == Placement::Auto) {
    if (o.device_memory <= Bytes{0})
      throw OptionError{
          {"placement"}, "placement `auto` fills what memory there is", "say how much: `device_memory: 40 GB`"};
    if (o.shard_param != 1 || o.offload_optim != 0 || o.offload_param != 0)
      throw OptionError{{"shard_param", "offload_optim", "offload_param"},
                        "`shard_param`, `offload_optim` and `offload_param` are shares of placement `static`",
                        "leave them out, or use `placement: static`"};
    return;
  }
  if (o.device_memory > Bytes{0} || o.step == GeminiStep::Warmup)
    throw OptionError{{"device_memory", "step"},
                      "`device_memory` and `step` are options of placement `auto`",
                      "leave them out, or use `placement: auto`"};
  if (o.offload_param > 0 && (o.shard_param != 1 || o.offload_optim != 1))
    throw OptionError{
        {"offload_param"},
        fmt::format("offload_param {} needs weights that are split and states that are on the host", o.offload_param),
        "use `shard_param: 1, offload_optim: 1`"};
  if (o.shard_param < 1 && o.parallel.data.kind != DataKind::Zero3)
    throw OptionError{{"shard_param"},
                      fmt::format("shard_param {} is a part of weights that replicas split", o.shard_param),
                      "use `parallel: {mesh: fsdp2, data: {kind: zero3}}`, or leave it 1"};
}

}  // namespace

std::unique_ptr<Strategy> make_gemini(const Node& node) {
  GeminiOptions o;
  read_options(node, o);
  check(o);
  return std::make_unique<Gemini>(std::move(o));
}

std::vector<OptionInfo> gemini_options() { return describe_options<GeminiOptions>(); }

}  // namespace orrery
