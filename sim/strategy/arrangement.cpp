// SPDX-License-Identifier: Apache-2.0
// Which ranks compute which part of a model together: the plan's mesh, and what layers do otherwise.
#include "sim/strategy/arrangement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/option_error.hpp"
#include "sim/plan/placement.hpp"
#include "sim/strategy/expert_placement.hpp"
#include "sim/strategy/model_parts.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {
namespace {

/// "0-3,8" → 0, 1, 2, 3, 8. `index`: of the layers that these are.
std::vector<std::size_t> parse_blocks(const std::string& text, std::int64_t blocks, std::size_t index) {
  const auto refuse = [&] {
    throw OptionError{{fmt::format("layers[{}].blocks", index)},
                      fmt::format("{} are no blocks of the model", in_quotes(text)),
                      fmt::format("its blocks are 0 to {}: write `5`, `0-11` or `0-3,8-11`", blocks - 1)};
  };
  std::vector<std::size_t> out;
  std::size_t i = 0;
  const auto number = [&]() -> std::int64_t {
    const std::size_t first = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    if (first == i || i - first > 6) refuse();
    return std::stoll(text.substr(first, i - first));
  };
  while (true) {
    const std::int64_t first = number();
    std::int64_t last = first;
    if (i < text.size() && text[i] == '-') {
      ++i;
      last = number();
    }
    if (last < first || last >= blocks) refuse();
    for (std::int64_t b = first; b <= last; ++b) out.push_back(static_cast<std::size_t>(b));
    if (i == text.size()) return out;
    if (text[i++] != ',') refuse();
    while (i < text.size() && text[i] == ' ') ++i;
  }
}

/// Communicators of the axes, and what else a rank needs to know of its place.
void complete(Roles& r, PlanBuilder& b, const ParallelOptions& p, bool sequence_parallel) {
  if (p.whole_experts && r.tp && sequence_parallel) {
    r.experts.axes.insert(r.experts.axes.end(), r.tp.axes.begin(), r.tp.axes.end());
    std::sort(r.experts.axes.begin(), r.experts.axes.end());
    r.experts.ranks = r.ep.ranks * r.tp.ranks;
  }
  for (Split* s : {&r.tp, &r.cp, &r.ep, &r.experts, &r.row, &r.col, &r.x, &r.y, &r.z})
    if (!s->axes.empty()) s->group = b.group_over(s->axes);
  if (sequence_parallel && (r.row || r.x))
    throw OptionError{{"sequence_parallel"},
                      "sequence_parallel splits rows over tp, which the mesh does not have",
                      "leave it out: row and col or x, y and z split rows between blocks anyway"};
  if (sequence_parallel && p.data_attention)
    throw OptionError{{"sequence_parallel", "data_attention"},
                      "sequence_parallel and data_attention split rows over tp in two ways",
                      "leave one of them out"};
  if (sequence_parallel && p.tp_comm_overlap && p.keep_gathered)
    throw OptionError{{"keep_gathered", "tp_comm_overlap"},
                      "keep_gathered keeps rows that tp_comm_overlap does not gather",
                      "leave one of them out"};
  r.placed_experts = p.expert_slots > 0;
  r.sequence_parallel = sequence_parallel && r.tp;
  r.data_attention = p.data_attention && r.tp;
  r.tp_comm_overlap = p.tp_comm_overlap && r.sequence_parallel;
  r.tensor_overlap = p.tensor_overlap || r.tp_comm_overlap;
  r.keep_gathered = p.keep_gathered;
  r.context = p.context;
  r.zigzag = p.zigzag;
}

/// Blocks of samples small enough for each way of splitting them.
std::vector<std::int8_t> block_axes_of(const std::vector<Arrangement>& arrangements) {
  const std::vector<std::int8_t> first = arrangements.front().slices.sample_axes();
  std::vector<std::int8_t> all = first;
  for (const Arrangement& s : arrangements)
    for (const std::int8_t a : s.slices.sample_axes())
      if (!has_axis(all, a)) all.push_back(a);
  const bool equal = std::all_of(arrangements.begin(), arrangements.end(),
                                 [&](const Arrangement& s) { return s.slices.sample_axes() == first; });
  if (equal) return {};
  std::sort(all.begin(), all.end());
  return all;
}

/// Ranks of tp gather rows in their own order, which has to be that of the rows.
void check_row_order(const Arrangement& s, const std::vector<std::int8_t>& order) {
  if (!s.roles().sequence_parallel) return;
  std::vector<std::int8_t> tp;
  for (const std::int8_t a : order)
    if (has_axis(s.roles().tp.axes, a)) tp.push_back(a);
  if (tp != s.roles().tp.axes)
    throw OptionError{{"sequence_parallel"},
                      "sequence_parallel would cut rows into parts that other layers have in another order",
                      "write tp last in each mesh: `dp2 tp2` and `tp4`, not `tp2 dp2` and `tp4`"};
}

std::vector<std::int8_t> row_order_of(const Mesh& mesh, const std::vector<Arrangement>& arrangements) {
  const Slices& first = arrangements.front().slices;
  std::vector<std::int8_t> order = first.block_axes.empty() ? first.sample_axes() : first.block_axes;
  for (std::size_t i = 0; i < mesh.axes.size(); ++i)
    for (const Arrangement& s : arrangements)
      if (const auto a = static_cast<std::int8_t>(i); has_axis(s.slices.row_axes(), a) && !has_axis(order, a))
        order.push_back(a);
  for (const Arrangement& s : arrangements) check_row_order(s, order);
  return order;
}

/// An activation that goes from layout to layout must be all that blocks hand on.
void check_one_stack(const Model& model, const std::vector<Arrangement>& arrangements) {
  const std::vector<std::int8_t> first = arrangements.front().slices.row_axes();
  if (std::all_of(arrangements.begin(), arrangements.end(), [&](const Arrangement& s) {
        return s.slices.row_axes() == first && s.roles().tp.axes == arrangements.front().roles().tp.axes;
      }))
    return;
  const auto* t = std::get_if<Transformer>(&model.network);
  const bool one = t && (t->encoder.empty() || t->decoder.empty());
  const auto shares = [](const Block& b) { return b.attention.relative_bias.has_value(); };
  if (!one || std::any_of(t->encoder.begin(), t->encoder.end(), shares) ||
      std::any_of(t->decoder.begin(), t->decoder.end(), shares))
    throw OptionError{
        {"layers"},
        fmt::format("{} is no single stack of blocks: its layers cannot have meshes of their own", model.name),
        "leave mesh and sequence_parallel of the layers out"};
}

void check_layer(const LayerOptions& l, std::size_t index, const Roles& roles, bool is_ffn) {
  if ((is_ffn ? l.ffn_sequence_parallel : l.sequence_parallel).value_or(false) && !roles.tp)
    throw OptionError{
        {fmt::format("layers[{}].{}sequence_parallel", index, is_ffn ? "ffn_" : "")},
        fmt::format("sequence_parallel of blocks {} splits rows over tp, which their mesh does not have", l.blocks),
        "leave it out, or give the mesh an axis tp"};
}

/// An arrangement in the order of the roles: of the plan, of its layers, of feed-forward layers that have one.
struct ArrangedLayer {
  const LayerOptions* layer = nullptr;
  std::size_t index = 0;  // of the layer
  bool is_ffn = false;

  bool sequence_parallel(bool plan) const {
    if (layer == nullptr) return plan;
    const bool own = layer->sequence_parallel.value_or(plan);
    return is_ffn ? layer->ffn_sequence_parallel.value_or(own) : own;
  }
};

std::vector<ArrangedLayer> arranged_layers(const ParallelOptions& p) {
  std::vector<ArrangedLayer> out(1);
  for (const bool is_ffn : {false, true})
    for (std::size_t i = 0; i < p.layers.size(); ++i)
      if (!is_ffn || p.layers[i].has_own_feed_forward()) out.push_back({&p.layers[i], i, is_ffn});
  return out;
}

/// Throws UserError where the feed-forward layer is one of experts.
std::vector<ParameterId> arranged_parameters(const Block& b, const ArrangedLayer& a) {
  if (!std::holds_alternative<Mlp>(b.ffn))
    throw OptionError{
        {fmt::format("layers[{}].ffn_mesh", a.index), fmt::format("layers[{}].ffn_sequence_parallel", a.index)},
        fmt::format("feed-forward layers of blocks {} are experts: they lie as attention does", a.layer->blocks),
        "leave out ffn_mesh and ffn_sequence_parallel"};
  return feed_forward_parameters(b);
}

/// Which blocks are arranged so.
void assign_blocks(Arrangements& out, const Model& model, const std::vector<ArrangedLayer>& layers) {
  const auto* transformer = std::get_if<Transformer>(&model.network);
  for (std::size_t k = 1; k < layers.size(); ++k) {
    const ArrangedLayer& a = layers[k];
    std::vector<std::size_t>& of = a.is_ffn ? out.of_ffn : out.of_block;
    for (const std::size_t block : parse_blocks(a.layer->blocks, block_count(model), a.index)) {
      of.resize(std::max(of.size(), block + 1), 0);
      if (of[block] != 0)
        throw OptionError{{fmt::format("layers[{}].blocks", a.index)},
                          fmt::format("block {} is in blocks {} and in blocks {}", block,
                                      layers[of[block]].layer->blocks, a.layer->blocks),
                          "say once what each block does"};
      of[block] = k;
      if (!a.is_ffn || transformer == nullptr) continue;
      for (const ParameterId id : arranged_parameters(block_of(*transformer, static_cast<int>(block)), a))
        out.of_parameter[id.value] = k;
    }
  }
}

void check_replicas(const Arrangement& s) {
  if (s.roles().fsdp && s.data == DataKind::Ddp)
    throw OptionError{{"data.kind"},
                      "the ranks of fsdp split nothing under `data: {kind: ddp}`",
                      "kind can be zero1, zero2 or zero3; use dp for replicas that keep all"};
}

void cut_batch(std::vector<Arrangement>& arrangements, const TrainOptions& o) {
  const std::vector<std::int8_t> blocks = block_axes_of(arrangements);
  for (Arrangement& s : arrangements) {
    s.slices.block_axes = blocks;
    require_multiple(o.batch, o.microbatches * s.slices.blocks(), "batch",
                     blocks.empty() ? "the microbatches of all replicas"
                                    : "the microbatches of all replicas of all layers together");
    s.slices.batch = o.batch / (o.microbatches * s.slices.replicas());
    if (s.roles().sequence_parallel)
      require_multiple(s.slices.batch * (o.sequence / s.roles().cp.ranks), s.roles().tp.ranks, "rows of a microbatch",
                       "split over tp by sequence_parallel");
  }
}

void check_owners(const ParallelOptions& p, const std::vector<Roles>& roles, const Mesh& mesh) {
  if (!p.data.owners || p.data.kind == DataKind::Zero1) return;
  if (p.data.kind != DataKind::Zero3)
    throw OptionError{{"owners"},
                      "owners of weights are for `data: {kind: zero1}` and zero3",
                      "leave `owners` out, or say `kind: zero1`"};
  if (roles.size() > 1 || roles.front().dp.ranks * roles.front().fsdp.ranks != mesh.size())
    throw OptionError{{"owners"},
                      "owners of whole buckets of zero3 need ranks that are all replicas",
                      "use a mesh of dp and fsdp alone, without `layers`, or leave `owners` out"};
}

void check_slots(const Model& model, const TrainOptions& o, const ParallelOptions& p, const std::vector<Roles>& roles) {
  const auto refuse = [](std::vector<std::string> keys, std::string what, std::string hint) {
    throw OptionError{std::move(keys), std::move(what), std::move(hint)};
  };
  const std::int64_t ranks = roles.front().ep.ranks, slots = p.expert_slots;
  if (!roles.front().ep)
    refuse({"expert_slots"}, "expert_slots are for replicas of experts on an axis ep", "leave it out, or use one");
  if (p.whole_experts || roles.size() > 1)
    refuse({"expert_slots", p.whole_experts ? "whole_experts" : "layers"},
           "replicas of experts lie on the ranks of ep alone, in all layers", "leave one of them out");
  if (o.capacity_factor > 0)
    refuse({"expert_slots", "capacity_factor"}, "replicas of experts take all rows, and capacity_factor drops some",
           "leave one of them out");
  for_each_experts(model, [&](int, const MoE& m) {
    const std::int64_t n = std::ssize(m.experts);
    if (ranks * slots < n)
      refuse({"expert_slots"}, fmt::format("{} ranks of {} expert_slots have no room for {} experts", ranks, slots, n),
             fmt::format("expert_slots can be {} or more", share(n, ranks)));
  });
}

/// Of each block; empty where it has no experts.
std::vector<ExpertLayout> layouts_of(const Model& model, const Arrangements& arrangements,
                                     const RoutingOptions& routing, std::int64_t slots) {
  std::vector<ExpertLayout> out(static_cast<std::size_t>(block_count(model)));
  for_each_experts(model, [&](int block, const MoE& m) {
    const std::int64_t ranks = arrangements.of(block).roles().experts.ranks;
    std::vector<double> shares = expert_shares(routing, m, block);
    ExpertLayout& layout = out[static_cast<std::size_t>(block)];
    if (slots == 0) {
      layout = whole_layout(std::move(shares), ranks);
      return;
    }
    ExpertPlaces places = place_experts(expert_shares(routing.placing(), m, block), ranks, slots);
    layout = {std::move(shares), std::move(places)};
  });
  return out;
}

}  // namespace

bool has_axis(std::span<const std::int8_t> axes, std::int8_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

std::int64_t block_count(const Model& model) {
  const auto* t = std::get_if<Transformer>(&model.network);
  return t ? static_cast<std::int64_t>(t->encoder.size() + t->decoder.size()) : 0;
}

Arrangements make_arrangements(PlanBuilder& b, const Model& model, const TrainOptions& o, const ParallelOptions& p,
                               std::vector<Roles> roles) {
  Arrangements out;
  check_routing(model, o);
  if (!o.routing.placed_by.empty() && p.expert_slots == 0)
    throw OptionError{
        {"routing.placed_by"}, "routing.placed_by is for replicas of experts in expert_slots", "leave it out"};
  if (p.expert_slots > 0) check_slots(model, o, p, roles);
  check_owners(p, roles, b.plan().mesh);
  const std::vector<ArrangedLayer> layers = arranged_layers(p);
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const LayerOptions layer = i == 0 ? LayerOptions{} : *layers[i].layer;
    if (i > 0) check_layer(layer, layers[i].index, roles[i], layers[i].is_ffn);
    complete(roles[i], b, p, layers[i].sequence_parallel(p.sequence_parallel));
    roles[i].feed_forward_only = layers[i].is_ffn;
    Arrangement s{.local = localise(model, roles[i]),
                  .slices = {.mesh = b.plan().mesh,
                             .roles = roles[i],
                             .microbatches = o.microbatches,
                             .batch = 1,
                             .sequence = o.sequence,
                             .block_axes = {}},
                  .data = layer.data.value_or(p.data.kind),
                  .recompute = layer.recompute.value_or(o.recompute)};
    check_replicas(s);
    out.all.push_back(std::move(s));
  }
  cut_batch(out.all, o);
  out.row_order = row_order_of(b.plan().mesh, out.all);
  check_one_stack(model, out.all);
  assign_blocks(out, model, layers);
  out.experts = layouts_of(model, out, o.routing, p.expert_slots);
  return out;
}

std::int64_t place_of_class(const Plan& plan, const Split& split) {
  std::vector<std::int64_t> first;
  for (const CoordRange& r : plan.classes.back().ranges) first.push_back(r.first);
  return position(plan.mesh, split.axes, first).at;
}

}  // namespace orrery
