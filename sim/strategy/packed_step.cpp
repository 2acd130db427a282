// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/packed_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "sim/base/option_error.hpp"

namespace orrery {
namespace {

[[noreturn]] void refuse_packing(std::string_view with, std::string_view why) {
  throw OptionError{{"packing"}, fmt::format("packing with {}: {}", with, why), "leave out one of them"};
}

/// What a mask of documents asks of a model and a mesh.
void check_mask(const StepPlan& step) {
  const Roles& r = step.roles();
  const TrainOptions& o = step.train;
  const auto& t = std::get<Transformer>(step.model.network);
  if (r.cp) refuse_packing("an axis cp", "a rank has parts of documents, whose other keys it would have to find");
  if (r.row || r.col || r.x || r.y || r.z)
    refuse_packing("an axis row, col, x, y or z", "no attention there is told where documents begin");
  if (o.stored_scores) refuse_packing("stored_scores", "their softmax is not told where documents begin");
  if (r.sequence_parallel && !t.positions.is_none())
    refuse_packing("sequence_parallel", "rows between blocks are not told their positions, which are in a table");
}

}  // namespace

void check_packing(const StepPlan& step) {
  const std::span<const Block> blocks = blocks_of(step.model);
  const bool is_plain = has_plain_attention(step.model) && !has_latents(step.model) &&
                        !std::get<Transformer>(step.model.network).ways &&
                        std::all_of(blocks.begin(), blocks.end(), [](const Block& b) { return b.attention.causal; });
  if (!is_plain)
    refuse_packing(fmt::format("the model {}", step.model.name),
                   "it is for language models whose attention is causal, over whole sequences and without latents");
  if (!step.parallel.layers.empty()) refuse_packing("layers", "ranks that have different samples are the same in all");
  if (step.parallel.data.owners) refuse_packing("owners", "each owner is a class of ranks already");
  if (step.parallel.data.predict) refuse_packing("optex", "a rank's point is its own part of the batch");
  if (step.parallel.expert_overlap)
    refuse_packing("expert_overlap", "passes that take turns need ranks that are alike");
  if (!step.train.routing.is_even())
    refuse_packing("uneven routing", "ranks of experts are classes by their rows already");
  if (step.train.packing->mask) check_mask(step);
}

PackedStep packed_step(const StepPlan& step) {
  const Slices& s = step.slices();
  const DataKind kind = step.parallel.data.kind;
  const bool in_each = kind == DataKind::Zero3 || s.roles.experts;
  const std::int64_t per_rank = s.batch * s.microbatches;
  return {.window = step.train.sequence,
          .ranks = s.replicas(),
          .per_rank = per_rank,
          .together = in_each ? s.batch : per_rank,
          .seed = static_cast<std::uint64_t>(step.train.seed)};
}

std::vector<PackedRanks> packed_ranks(const std::vector<CoordRange>& ranks, std::span<const std::int8_t> axes) {
  std::vector<PackedRanks> out;
  std::vector<CoordRange> first = ranks;
  for (const std::int8_t axis : axes) {
    CoordRange& r = first[static_cast<std::size_t>(axis)];
    if (r.last - r.first < 2) continue;
    std::vector<CoordRange> others = first;
    others[static_cast<std::size_t>(axis)].first = r.first + 1;
    out.push_back({std::move(others), false});
    r.last = r.first + 1;
  }
  out.insert(out.begin(), {std::move(first), true});
  return out;
}

SampleOrder sample_order(const Plan& plan, const TrainOptions& o) {
  SampleOrder out;
  const auto port =
      std::find_if(plan.ports.begin(), plan.ports.end(), [](const Port& p) { return p.name == "tokens"; });
  if (port != plan.ports.end() && port->rows) {
    std::set<std::vector<std::int64_t>> known;
    for (std::int64_t rank = 0; rank < plan.mesh.size(); ++rank) {
      std::vector<std::int64_t> samples = port->rows(plan.mesh.coordinates(RankId{static_cast<std::size_t>(rank)}));
      const std::int64_t each = plan.shape(port->tensor).elements() / std::ssize(samples);  // tokens: all, or one
      for (std::int64_t& s : samples) s = s * each / o.sequence;
      samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
      if (known.insert(samples).second) out.samples.insert(out.samples.end(), samples.begin(), samples.end());
    }
    out.ranks = std::ssize(known);
  }
  const bool balances = o.packing->balance || o.packing->packer == PackerKind::Balanced;
  if (balances && out.ranks > 1) return out;
  out.samples.resize(static_cast<std::size_t>(o.batch));
  std::iota(out.samples.begin(), out.samples.end(), std::int64_t{0});
  return out;
}

}  // namespace orrery
