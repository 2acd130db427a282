// SPDX-License-Identifier: Apache-2.0
// Plans of a server: one step over rows of many sequences, and copies of keys and values between its pool and the host.
#include "sim/strategy/serving.hpp"

#include <fmt/format.h>

#include "sim/base/option_error.hpp"
#include "sim/strategy/forward_stage.hpp"
#include "sim/strategy/kv_cache.hpp"

namespace orrery {
namespace {

void check_served(const ParallelOptions& p) {
  for (const Axis& a : parse_mesh(p.mesh).axes)
    if (a.name != "tp" && a.size > 1)
      throw OptionError{{"mesh"},
                        fmt::format("a server splits matrices over tp only, its mesh has {}{}", a.name, a.size),
                        "use a mesh such as `tp4`, or the strategy `single`"};
  if (p.data_attention)
    throw OptionError{
        {"data_attention"}, "data_attention splits samples over tp, a server has one row of tokens", "leave it out"};
}

ForwardStep make_serving_step(PlanBuilder& b, const Model& model, const ParallelOptions& p, const ServingStepOptions& o,
                              std::int64_t rows) {
  check_served(p);
  return make_forward_step(b, model, p,
                           {.batch = 1,
                            .sequence = rows,
                            .target_sequence = 1,
                            .dtype = dtype_of(o.dtype),
                            .quantised = {},
                            .cache_use = CacheUse::Paged,
                            .placed = o.placed});
}

/// Keys and values of all blocks, or of their sub-layers side by side, in so many slots of a tier.
KvCache make_pool(PlanBuilder& b, const Transformer& t, std::int64_t slots, DType dtype, Tier tier) {
  KvCache cache;
  const std::size_t ways = t.ways ? static_cast<std::size_t>(t.ways->count) : 1, n = t.decoder.size() * ways;
  cache.capacity = slots;
  cache.keys.resize(n);
  cache.values.resize(n);
  for (std::size_t i = 0; i < n; ++i)
    store_block(cache, i, t.decoder[i / ways].attention, [&](std::string_view what, const Shape& token) {
      return b.tensor(fmt::format("{}.{}.{}", tier == Tier::Device ? "pool" : "swapped", i, what),
                      cache_shape(1, slots, token),
                      {.dtype = dtype, .role = TensorRole::KvCache, .tier = tier, .persistent = true});
    });
  return cache;
}

TensorId index_input(PlanBuilder& b, std::string_view port, std::int64_t count) {
  const TensorId t = b.tensor(fmt::format("input.{}.{}", port, count), Shape{count},
                              {.dtype = DType::I32, .role = TensorRole::Input, .persistent = true});
  b.port(std::string{port}, t);
  return t;
}

/// The pool of a step, and where its rows stand in it. `positions` of the rows: an input that the model reads anyway.
KvCache make_step_pool(PlanBuilder& b, const Transformer& t, const ServingStepOptions& o, DType dtype,
                       TensorId positions) {
  KvCache cache = make_pool(b, t, o.pages * o.page, dtype, Tier::Device);
  PagedRows& p = cache.paged;
  p = {.sequences = o.sequences, .page = o.page, .max_pages = o.max_pages, .slots = cache.capacity};
  p.slot = index_input(b, "slots", o.rows);
  p.table = index_input(b, "pages", o.sequences * o.max_pages);
  p.starts = index_input(b, "starts", o.sequences + 1);
  p.lengths = index_input(b, "lengths", o.sequences);
  p.last = index_input(b, "last", o.sequences);
  p.positions = positions.is_none() ? index_input(b, "positions", o.rows) : positions;
  return cache;
}

}  // namespace

Plan lower_serving_step(const Model& model, const ServingStepOptions& o, const ParallelOptions& parallel,
                        const WorkspaceModel* workspaces) {
  const DType dtype = dtype_of(o.dtype);
  PlanBuilder b{fmt::format("{}.serve.{}", model.name, o.rows), parse_mesh(parallel.mesh)};
  const ForwardStep step = make_serving_step(b, model, parallel, o, o.rows);
  ForwardStage stage{b, step, 0};
  KvCache pool = make_step_pool(b, step.transformer(), o, dtype, stage.inputs().front().positions);
  stage.layers().set_paged(&pool.paged);
  b.set_phase(Phase::Decode);
  const std::int64_t vocab = output_classes(model);
  const TensorId logits = stage.all_classes(stage.pass(0, &pool, LogitRows::Last));
  const TensorId kept = stage.result("logits", o.sequences, vocab, dtype),
                 next = stage.result("next_tokens", o.sequences, 0, DType::I32);
  stage.draw({.rows = o.sequences, .vocab = vocab, .step = Extent{0, Symbol::Step}, .dtype = dtype}, logits, kept,
             next);
  b.add("read_tokens", HostWork{.bytes = size_of(DType::I32, o.sequences)}, {reads(next)}, Stream::Host);
  Plan plan = b.take(workspaces);
  plan.purpose = {double(o.sequences), model_flops(plan)};
  return plan;
}

Plan lower_serving_swap(const Model& model, const ServingStepOptions& o, const ServingSwapOptions& swap,
                        const ParallelOptions& parallel, const WorkspaceModel* workspaces) {
  const DType dtype = dtype_of(o.dtype);
  PlanBuilder b{fmt::format("{}.swap_{}", model.name, swap.out ? "out" : "in"), parse_mesh(parallel.mesh)};
  const ForwardStep step = make_serving_step(b, model, parallel, o, swap.slots);
  b.rank_class();
  const KvCache pool = make_pool(b, step.transformer(), o.pages * o.page, dtype, Tier::Device),
                host = make_pool(b, step.transformer(), swap.host_pages * o.page, dtype, Tier::Host);
  const TensorId from = index_input(b, "from", swap.slots), to = index_input(b, "to", swap.slots);
  const auto move = [&](TensorId out_of, TensorId into) {
    if (out_of.is_none()) return;
    const Shape& shape = b.plan().shape(out_of);
    const std::int64_t slots = shape[1], cols = shape.elements() / slots, room = b.plan().shape(into)[1];
    const TensorId rows = b.tensor("swap.rows", Shape{swap.slots, cols}, {.dtype = dtype});
    b.add("swap.read",
          Gather{.rows = swap.slots, .cols = cols, .table_rows = slots, .first = 0, .last = slots, .dtype = dtype},
          {reads(out_of), reads(from), writes(rows)});
    b.add("swap.write", ScatterRows{.rows = swap.slots, .cols = cols, .table_rows = room, .dtype = dtype},
          {reads(rows), reads(to), updates(into)});
  };
  for (std::size_t i = 0; i < pool.keys.size(); ++i)
    for (const auto member : {&KvCache::keys, &KvCache::values})
      move(swap.out ? (pool.*member)[i] : (host.*member)[i], swap.out ? (host.*member)[i] : (pool.*member)[i]);
  return b.take(workspaces);
}

}  // namespace orrery
