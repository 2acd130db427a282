// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/train_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "sim/base/option_error.hpp"
#include "sim/plan/stretches.hpp"
#include "sim/strategy/block_profile.hpp"
#include "sim/strategy/interleave.hpp"
#include "sim/strategy/offload/first_use.hpp"
#include "sim/strategy/offload/owner_classes.hpp"
#include "sim/strategy/packed_step.hpp"
#include "sim/strategy/remat_plan.hpp"
#include "sim/strategy/stage.hpp"

namespace orrery {
namespace {

void check_stored_scores(const Model& model, const TrainOptions& o, const Roles& roles) {
  if (o.stored_scores && roles.cp)
    throw OptionError{{"stored_scores"},
                      "stored_scores is for sequences on one rank",
                      "leave it out: on an axis cp scores are stored with context: rsa, and with no other"};
  const std::span<const Block> blocks = blocks_of(model);
  if (o.eager_attention && std::any_of(blocks.begin(), blocks.end(), [](const Block& b) { return b.attention.cap; }))
    throw OptionError{
        {"eager_attention"},
        fmt::format("eager_attention is for scores without bounds, and those of {} have them", model.name),
        "leave it out"};
  if (o.attention_dropout > 0 && (roles.row || roles.col || roles.x || roles.y || roles.z))
    throw OptionError{
        {"attention_dropout"}, "attention_dropout is for heads that are whole or split over tp", "leave it out"};
}

void check_context(const Model& model, const Slices& slices) {
  if (!has_plain_attention(model))
    throw OptionError{{"mesh"},
                      fmt::format("attention of {} cannot be cut over cp", model.name),
                      "cp needs one stack of plain attention and a language-model head"};
  const bool two = slices.roles.context == ContextKind::Ring && slices.roles.zigzag;
  require_multiple(slices.sequence, slices.roles.cp.ranks * (two ? 2 : 1), "sequence",
                   two ? "two chunks for each rank of cp" : "the ranks of cp");
}

}  // namespace

Flops model_flops(const Plan& plan, const NeededShares& needed) {
  std::vector<Flops> counted;  // per work; 0 where the model does not need it
  for (const Work& w : plan.works) {
    const bool attends = std::holds_alternative<AttentionForward>(w) || std::holds_alternative<AttentionBackward>(w);
    const double share = attends ? needed.attention : class_of(w) == OpClass::Gemm ? needed.products : 0.0;
    counted.push_back(share > 0 ? amount(w).flops * share : Flops{});
  }
  Flops sum;
  for (const RankClass& c : plan.classes) {
    const auto add = [&](const std::vector<WorkId>& works) {
      for (const WorkId w : works) sum += counted[w.index()] * double(c.size());
    };
    const auto works_of = [&](const Stretch& s) {  // that count
      std::vector<WorkId> works;
      for (std::size_t i = s.first; i < s.first + s.num_ops; ++i)
        if (const Op& op = plan.ops[i];
            op.phase != Phase::Recompute && op.phase != Phase::Optimizer && counted[op.work.index()] > Flops{})
          works.push_back(op.work);
      return works;
    };
    std::map<OpId, std::vector<WorkId>> blocks;  // that others repeat
    for (const Stretch& s : stretches_of(plan, c)) {
      if (s.like.is_none()) {
        add(works_of(s));
        continue;
      }
      const auto [block, is_new] = blocks.try_emplace(s.like);
      if (is_new) block->second = works_of(s);
      add(block->second);
    }
  }
  return sum;
}

namespace {

/// What products over stored scores compute behind a causal mask, with or without a window, and nobody needs. Per
/// masked pair of a query and a key and per head: 2(d_qk + d_v) forward, twice that backward.
Flops masked_flops(const Model& model, const TrainOptions& o, const Roles& roles) {
  const bool stores = o.stored_scores || (roles.cp && roles.context == ContextKind::Rsa);
  double flops = 0;
  for (const Block& b : stores ? blocks_of(model) : std::span<const Block>{}) {
    const Attention& a = b.attention;
    if (!a.causal) continue;
    const AttentionShape left{
        .q = o.sequence, .kv = Extent{o.sequence}, .window = a.window.value_or(0), .chunked = a.chunked};
    const double masked = double(o.sequence) * double(o.sequence) - left.pairs({});
    flops += 6 * double(a.heads * (a.qk_dim + a.v_dim)) * masked;
  }
  return Flops{flops * double(o.batch)};
}

std::optional<SparseGating> gating_of(const Model& model, const TrainOptions& o) {
  if (!o.dense_to_sparse) return std::nullopt;
  SparseGating gating{*o.dense_to_sparse, {}};
  for_each_experts(model, [&](int, const MoE& m) { gating.add(std::ssize(m.experts)); });
  return gating;
}

void check_experts(const TrainOptions& o, const ParallelOptions& p, const Slices& s) {
  if (p.expert_buffer > 0 && (!s.roles.experts || o.capacity_factor > 0))
    throw OptionError{{"expert_buffer"},
                      "expert_buffer is for experts on an axis ep that take all tokens",
                      o.capacity_factor > 0 ? "leave it out: capacity_factor bounds what arrives" : "leave it out"};
  if (p.expert_overlap && !s.roles.experts)
    throw OptionError{{"expert_overlap"},
                      "expert_overlap hides exchanges of experts, and no axis has any",
                      "leave it out, or use an axis ep"};
  if (p.whole_experts && !s.roles.fold_experts())
    throw OptionError{
        {"whole_experts"},
        "whole_experts lays experts on the ranks of tp, too, which route the rows that they have",
        "leave it out, or use an axis tp and sequence_parallel: {mesh: dp2 ep2 tp2, sequence_parallel: true}"};
  if (o.dense_to_sparse && o.dense_to_sparse->dispatch == GateDispatch::Dense &&
      (p.whole_experts || p.expert_buffer > 0))
    throw OptionError{{"whole_experts", "expert_buffer", "dense_to_sparse.dispatch"},
                      "dispatch: dense gives each expert room for all tokens of a rank",
                      "leave out whole_experts and expert_buffer"};
  if (p.whole_experts && o.capacity_factor > 0)
    throw OptionError{{"whole_experts", "capacity_factor"},
                      "whole_experts and capacity_factor: ranks of tp would each count the rows of an expert",
                      "leave one of them out"};
  if (o.capacity_groups == 0) return;
  require_multiple(o.capacity_groups, s.blocks(), "capacity_groups", "the replicas of the mesh");
  if (const std::int64_t samples = s.batch * s.replicas(); samples % o.capacity_groups != 0)
    throw OptionError{
        {"capacity_groups"},
        fmt::format("{} capacity_groups do not divide the {} samples of a microbatch", o.capacity_groups, samples),
        fmt::format("capacity_groups can be {} or {}", s.blocks(), samples)};
}

void check_pieces(const ParallelOptions& p, const Arrangements& arrangements) {
  const auto& all = arrangements.all;
  if (!p.tp_comm_overlap ||
      std::any_of(all.begin(), all.end(), [](const Arrangement& a) { return a.roles().tp_comm_overlap; }))
    return;
  throw OptionError{
      {"tp_comm_overlap"},
      "tp_comm_overlap multiplies rows on their way over tp, which no layer splits them over",
      "leave it out, or use sequence_parallel: {mesh: tp2, sequence_parallel: true, tp_comm_overlap: true}"};
}

/// Options of layers that the model has not.
void check_has_layers(const Model& model, const TrainOptions& o, const ParallelOptions& p) {
  if (o.copied_values && !has_latents(model))
    throw OptionError{{"copied_values"},
                      fmt::format("copied_values is for latent attention, and {} has none", model.name),
                      "leave it out"};
  if (o.weigh_inside && weighs_inputs(model))
    throw OptionError{
        {"weigh_inside"}, fmt::format("experts of {} weigh what they read", model.name), "leave weigh_inside out"};
  if (has_experts(model)) return;
  for (const auto& [name, on] : {std::pair{"whole_experts", p.whole_experts}, {"weigh_inside", o.weigh_inside}})
    if (on)
      throw OptionError{{std::string{name}},
                        fmt::format("{} is for models of experts, and {} has none", name, model.name),
                        "leave it out"};
}

void check_recompute(const TrainOptions& o, const ParallelOptions& p) {
  const bool selects = o.recompute == Recompute::Selective ||
                       std::any_of(p.layers.begin(), p.layers.end(),
                                   [](const LayerOptions& l) { return l.recompute == Recompute::Selective; });
  if (selects && o.recompute_parts.empty())
    throw OptionError{{"recompute_parts"},
                      "`recompute: selective` with no recompute_parts makes nothing again",
                      "name one, such as core, norms or activations"};
  if (!selects && o.recompute_parts != TrainOptions{}.recompute_parts)
    throw OptionError{{"recompute_parts"}, "recompute_parts are for `recompute: selective`", "leave them out"};
}

void check_optimizer(const TrainOptions& o) {
  if (o.optimizer.narrow_moments && (o.optimizer.kind != OptimizerKind::AdamW || o.dtype != Precision::BF16))
    throw OptionError{{"narrow_moments"},
                      "narrow_moments keeps AdamW's moments as weights in bf16 are",
                      "leave it out, or train in bf16 with adamw"};
  const bool is_narrow = (o.dtype == Precision::BF16 || o.dtype == Precision::F16) && !o.wide_gradients;
  if (o.optimizer.widen_gradients && (!is_narrow || o.optimizer.kind != OptimizerKind::AdamW))
    throw OptionError{{"widen_gradients"},
                      "widen_gradients copies gradients of 16 bits to f32 for adamw",
                      "leave it out, or train in bf16 or f16 without wide_gradients"};
}

void check_loss(const TrainOptions& o) {
  const bool copies = o.loss == LossKind::Widened || o.loss == LossKind::Torch;
  if (copies && o.dtype != Precision::BF16 && o.dtype != Precision::F16)
    throw OptionError{
        {"losses"}, "losses widened and torch copy logits of 16 bits to f32", "leave it out, or train in bf16 or f16"};
}

/// With contiguous chunks and a causal mask the first ranks of a ring see fewer keys than the last ones.
bool ring_is_uneven(const Model& model, const Roles& roles) {
  const auto* t = std::get_if<Transformer>(&model.network);
  return roles.cp && roles.context == ContextKind::Ring && !roles.zigzag && t && !t->decoder.empty();
}

struct ClassSpec {
  int stage = 0;
  std::string name;
  std::vector<CoordRange> ranges;
  std::int64_t pairs = 0;  // of attention in a window of documents
};

/// The coordinates of the ranks that are the k-th of those over which something is split.
void narrow(std::vector<CoordRange>& ranges, const Mesh& mesh, const Split& split, std::int64_t k) {
  for (auto a = split.axes.rbegin(); a != split.axes.rend(); ++a) {  // the last varies fastest
    const std::int64_t size = mesh.axes[static_cast<std::size_t>(*a)].size;
    ranges[static_cast<std::size_t>(*a)] = {k % size, k % size + 1};
    k /= size;
  }
}

/// A class per owner of buckets of zero3; none: nobody owns any alone.
std::vector<OwnerClass> owner_classes(const Mesh& mesh, const Roles& roles, const DataOptions& data) {
  std::vector<OwnerClass> out;
  const Split& own = roles.fsdp ? roles.fsdp : roles.dp;
  if (!data.owners || data.kind != DataKind::Zero3 || !own) return out;
  for (std::int64_t k = 0; k < own.ranks; ++k) {
    out.push_back({fmt::format("owner {}", k), all_of(mesh)});
    narrow(out.back().ranges, mesh, own, k);
  }
  return out;
}

/// Whether ranks that experts lie on have different ones, or different numbers of rows.
bool experts_are_uneven(const Arrangements& a) {
  if (std::all_of(a.experts.begin(), a.experts.end(), [](const ExpertLayout& e) { return e.is_even(); })) return false;
  const auto differs = [&](const Arrangement& s) { return s.roles().experts.axes != a.outside().roles().experts.axes; };
  if (std::any_of(a.all.begin(), a.all.end(), differs))
    throw OptionError{{"routing", "layers"},
                      "uneven experts lie on the same ranks in all layers",
                      "leave out `mesh` of the layers, or routing"};
  return true;
}

/// A class per stage of the pipeline, and there per rank of cp, and per rank of those with experts, where these differ.
std::vector<ClassSpec> make_classes(const Model& model, const Mesh& mesh, const Arrangements& arrangements) {
  const Roles& roles = arrangements.outside().roles();
  const Split one;
  const Split& own = ring_is_uneven(model, roles) ? roles.cp : one;
  const Split& experts = experts_are_uneven(arrangements) ? roles.experts : one;
  std::vector<ClassSpec> out;
  for (std::int64_t k = 0; k < roles.pp.ranks * own.ranks * experts.ranks; ++k) {
    const std::int64_t e = k % experts.ranks, c = k / experts.ranks % own.ranks, s = k / experts.ranks / own.ranks;
    ClassSpec spec{static_cast<int>(s), "", all_of(mesh)};
    const auto take = [&](const Split& split, std::string_view what, std::int64_t at) {
      spec.name += fmt::format("{}{} {}", spec.name.empty() ? "" : " ", what, at);
      narrow(spec.ranges, mesh, split, at);
    };
    if (roles.pp) take(roles.pp, "stage", s);
    if (own) take(own, "chunk", c);
    if (experts) take(experts, "experts", e);
    if (spec.name.empty()) spec.name = "all";
    out.push_back(std::move(spec));
  }
  return out;
}

/// With windows of documents: of each class the ranks of data that have the most to do, which are taken to be the first
/// ones, and the others.
std::vector<ClassSpec> split_packed(std::vector<ClassSpec> classes, const Slices& slices, const PackedAmounts& packed) {
  for (ClassSpec& c : classes) c.pairs = packed.slowest;
  if (packed.is_even()) return classes;
  std::vector<ClassSpec> out;
  for (const ClassSpec& c : classes)
    for (PackedRanks& r : packed_ranks(c.ranges, slices.sample_axes())) {
      const std::string_view what = r.slowest ? "longest documents" : "other documents";
      const std::string name = c.name == "all" ? std::string{what} : fmt::format("{} {}", c.name, what);
      out.push_back({c.stage, name, std::move(r.ranges), r.slowest ? packed.slowest : packed.others});
    }
  return out;
}

}  // namespace

Schedule schedule_of(const ParallelOptions& p, std::int64_t stages, std::int64_t microbatches) {
  PipelineShape shape{static_cast<std::int32_t>(stages), static_cast<std::int32_t>(microbatches), {}};
  if (p.chunks != 0) shape.chunks = static_cast<std::int32_t>(p.chunks);
  return make_schedule(p.schedule, shape);
}

namespace {

TrainOptions without_recompute(TrainOptions o) {
  o.recompute = Recompute::None;
  o.recompute_parts = TrainOptions{}.recompute_parts;
  o.activation_budget.reset();
  return o;
}

/// The step without recomputation, with what a search says is made again.
Plan lower_checkmate(const Model& model, const TrainOptions& o, const ParallelOptions& p,
                     const WorkspaceModel* workspaces, Repeats repeats) {
  if (!o.activation_budget)
    throw OptionError{
        {"train.recompute"}, "recompute: checkmate has no budget", "set activation_budget, such as 2 GiB"};
  if (o.recompute_interval > 1)
    throw OptionError{{"recompute_interval"}, "recompute_interval is for `recompute: full`", "leave it out"};
  for (const LayerOptions& l : p.layers)
    if (l.recompute)
      throw OptionError{{"layers", "train.recompute"},
                        "recompute of single blocks cannot be combined with `recompute: checkmate`",
                        "leave out `recompute` of layers"};
  if (o.remat == nullptr) bug("nobody finds the schedules of `recompute: checkmate`");
  const Plan plain = lower_train_step(model, without_recompute(o), p, nullptr, repeats);
  return make_again(plain, *o.remat, *o.activation_budget, workspaces);
}

}  // namespace

Plan lower_train_step(const Model& model, const TrainOptions& o, const ParallelOptions& p,
                      const WorkspaceModel* workspaces, Repeats repeats) {
  if (o.recompute == Recompute::Checkmate) return lower_checkmate(model, o, p, workspaces, repeats);
  StageMeshes meshes = stage_meshes(p);
  const Roles roles = meshes.roles.front();
  PlanBuilder b{model.name + ".train", std::move(meshes.mesh)};
  StepPlan step{.model = model,
                .train = o,
                .parallel = p,
                .arrangements = make_arrangements(b, model, o, p, std::move(meshes.roles)),
                .schedule = {},
                .bounds = {},
                .repeats = repeats};
  check_meaning(model, roles);
  if (roles.pp) {
    check_pipeline(model);
    step.schedule = schedule_of(p, roles.pp.ranks, o.microbatches);
    step.bounds = part_bounds(p.stage_layers, block_count(model), step.schedule->parts);
  }
  if (roles.cp) check_context(model, step.slices());
  check_stored_scores(model, o, roles);
  check_recompute(o, p);
  check_loss(o);
  check_optimizer(o);
  check_has_layers(model, o, p);
  check_pieces(p, step.arrangements);
  check_experts(o, p, step.slices());
  step.gating = gating_of(model, o);
  if (o.packing) {
    check_packing(step);
    step.packed = packed_amounts(*o.packing, packed_step(step));
  }
  step.chain = chain_schedule(step, [&] { return lower_train_step(model, without_recompute(o), p, nullptr, repeats); });
  std::vector<ClassSpec> classes = make_classes(model, b.plan().mesh, step.arrangements);
  if (step.packed) classes = split_packed(std::move(classes), step.slices(), *step.packed);
  for (ClassSpec& c : classes) {
    b.begin_class(std::move(c.name), std::move(c.ranges));
    StageLowering{b, step, c.stage, c.pairs}.run();
    if (&c == &classes.front()) b.reserve(classes.size());
  }
  const std::vector<OwnerClass> owners = owner_classes(b.plan().mesh, step.roles(), p.data);
  const NetworkSizes sizes{o.batch, o.sequence, target_length(o.target_sequence, o.sequence)};
  Plan plan = b.take(owners.empty() ? workspaces : nullptr);
  const PackedAmounts packed = step.packed.value_or(PackedAmounts{});
  plan.purpose = {.tokens = double(output_rows(model, sizes)) * packed.tokens,
                  .model_flops = model_flops(plan, {.products = packed.tokens, .attention = packed.needed}) -
                                 masked_flops(model, o, step.roles()),
                  .padding = 1 - packed.tokens};
  if (p.data.part > 0) plan = at_first_use(plan, p.data.reshard, owners.empty() ? workspaces : nullptr);
  if (!owners.empty()) plan = split_owners(plan, owners, workspaces);
  if (p.expert_overlap) return interleave_passes(plan);
  return plan;
}

}  // namespace orrery
