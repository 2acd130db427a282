// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/block_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "sim/base/option_error.hpp"
#include "sim/strategy/stage.hpp"

namespace orrery {
namespace {

/// An activation that an op of a block makes.
struct Made {
  int layer = -1;
  NameId maker;
  bool forward = true;
  std::int64_t bytes = 0;
  bool read_backward = false, leaves = false;  // by ops of backward passes; by forward ops of others
};

/// One class of a plan: who makes which activation, and who reads it.
class ClassProfile {
 public:
  ClassProfile(const Plan& plan, const RankClass& c) : plan_{plan}, ops_{plan.ops_of(c)} {
    for (const Op& op : ops_) note(op);
  }

  bool has(int layer) const {
    return std::any_of(ops_.begin(), ops_.end(), [&](const Op& op) { return counts(op) && op.layer == layer; });
  }

  template <class F>
  void for_each_saved(int layer, F f) const {
    for (const auto& [tensor, made] : made_)
      if (made.layer == layer && made.forward && made.read_backward) f(made);
  }

  ChainBlock block(int layer, const OpWork& work) const {
    ChainBlock b{.forward = 0, .backward = 0};
    for (const Op& op : ops_) {
      if (!counts(op) || op.layer != layer) continue;
      (op.phase == Phase::Forward ? b.forward : b.backward) += work(plan_, op);
    }
    std::int64_t output = 0;
    for (const auto& [tensor, made] : made_)
      if (made.layer == layer && made.forward && (made.read_backward || made.leaves)) {
        b.saved += made.bytes;
        if (made.leaves) output = std::max(output, made.bytes);
      }
    b.forward_extra = std::max<std::int64_t>(peak(layer, true) - b.saved, 0);
    b.backward_extra = peak(layer, false);
    b.input = output;  // of the next block, until `profile_chain` moves it
    return b;
  }

 private:
  bool counts(const Op& op) const {
    return op.microbatch == 0 && (op.phase == Phase::Forward || op.phase == Phase::Backward);
  }

  void note(const Op& op) {
    if (!counts(op)) return;
    const bool forward = op.phase == Phase::Forward;
    for (const Operand& o : plan_.operands_of(op)) {
      const TensorId owner = plan_.owner(o.tensor());
      const Tensor& t = plan_.tensors[owner.index()];
      if (t.persistent || t.role != TensorRole::Activation) continue;
      const auto [it, is_new] = made_.try_emplace(owner.value);
      Made& made = it->second;
      if (is_new) made = {op.layer, op.name, forward, static_cast<std::int64_t>(plan_.size(owner).base())};
      last_use_[owner.value] = &op;
      if (!made.forward) continue;
      made.read_backward |= !forward;
      made.leaves |= forward && op.layer != made.layer;
    }
  }

  /// The most that tensors of a pass over the block, made in it, take while it runs.
  std::int64_t peak(int layer, bool forward) const {
    std::int64_t live = 0, most = 0;
    std::unordered_map<std::uint32_t, bool> seen;
    for (const Op& op : ops_) {
      if (!counts(op) || op.layer != layer || (op.phase == Phase::Forward) != forward) continue;
      for (const Operand& o : plan_.operands_of(op)) {
        const std::uint32_t owner = plan_.owner(o.tensor()).value;
        const auto it = made_.find(owner);
        if (it == made_.end() || it->second.layer != layer || it->second.forward != forward) continue;
        if (seen.emplace(owner, true).second) live += it->second.bytes;
      }
      most = std::max(most, live);
      for (const Operand& o : plan_.operands_of(op)) {
        const std::uint32_t owner = plan_.owner(o.tensor()).value;
        if (const auto it = seen.find(owner); it != seen.end() && it->second && last_use_.at(owner) == &op) {
          live -= made_.at(owner).bytes;
          it->second = false;
        }
      }
    }
    return most;
  }

  const Plan& plan_;
  std::span<const Op> ops_;
  std::unordered_map<std::uint32_t, Made> made_;
  std::unordered_map<std::uint32_t, const Op*> last_use_;
};

void check_chain(const StepPlan& step, std::string_view what) {
  const auto* t = std::get_if<Transformer>(&step.model.network);
  if (t == nullptr || (!t->encoder.empty() && !t->decoder.empty()))
    throw OptionError{{"train.recompute"},
                      fmt::format("{} needs one stack of blocks, which {} is not", what, step.model.name),
                      "recompute can be none, selective, full or whole"};
}

}  // namespace

double flops_of(const Plan& plan, const Op& op) { return amount(plan.work(op)).flops.base(); }

std::vector<std::int64_t> saved_by_part(const Plan& plan, int layer, std::size_t parts,
                                        const std::function<std::size_t(std::string_view)>& part_of) {
  std::vector<std::int64_t> out(parts, 0);
  for (const RankClass& c : plan.classes) {
    const ClassProfile profile{plan, c};
    if (!profile.has(layer)) continue;
    profile.for_each_saved(layer, [&](const Made& m) { out[part_of(plan.names[m.maker])] += m.bytes; });
    break;
  }
  return out;
}

Chain profile_chain(const Plan& plan, int first, int last, const OpWork& work) {
  for (const RankClass& c : plan.classes) {
    const ClassProfile profile{plan, c};
    if (first >= last || !profile.has(first)) continue;
    Chain chain;
    std::int64_t boundary = 0;
    for (int layer = first; layer < last; ++layer) {
      ChainBlock b = profile.block(layer, work);
      const std::int64_t output = b.input;
      b.input = layer == first ? output : boundary;  // the first reads as much as it gives
      boundary = output;
      chain.blocks.push_back(b);
    }
    chain.output = boundary;
    return chain;
  }
  return {};
}

std::optional<ChainSchedule> chain_schedule(const StepPlan& step, const std::function<Plan()>& plain) {
  const TrainOptions& o = step.train;
  const bool is_rotor = o.recompute == Recompute::Rotor;
  if (o.activation_budget && !is_rotor)
    throw OptionError{{"activation_budget"},
                      "activation_budget is for `recompute: rotor` and `recompute: checkmate`",
                      "leave it out"};
  if (o.recompute_interval > 1 && o.recompute != Recompute::Full)
    throw OptionError{{"recompute_interval"}, "recompute_interval is for `recompute: full`", "leave it out"};
  for (const LayerOptions& l : step.parallel.layers)
    if (l.recompute && (is_rotor || o.recompute_interval > 1 || *l.recompute == Recompute::Rotor ||
                        *l.recompute == Recompute::Checkmate))
      throw OptionError{{"layers", "train.recompute"},
                        "recompute of single blocks cannot be combined with schedules of whole chains",
                        "leave out `recompute` of layers, or rotor and recompute_interval of the workload"};
  if (!is_rotor && o.recompute_interval == 1) return std::nullopt;
  check_chain(step, is_rotor ? "recompute: rotor" : "recompute_interval");
  if (is_rotor && !o.activation_budget)
    throw OptionError{{"train.recompute"}, "recompute: rotor has no budget", "set activation_budget, such as 2 GiB"};
  std::vector<int> bounds = step.bounds;
  if (bounds.empty()) bounds = {0, static_cast<int>(block_count(step.model))};
  std::optional<Plan> unchanged;
  if (is_rotor) unchanged = plain();
  std::vector<ChainSchedule> parts;
  for (std::size_t k = 0; k + 1 < bounds.size(); ++k) {
    if (!is_rotor) {
      parts.push_back(every_kth(bounds[k + 1] - bounds[k], static_cast<int>(o.recompute_interval)));
      continue;
    }
    const Chain chain = profile_chain(*unchanged, bounds[k], bounds[k + 1]);
    const auto budget = static_cast<std::int64_t>(o.activation_budget->base());
    std::optional<ChainSchedule> found = rotor(chain, budget);
    if (!found)
      throw OptionError{{"activation_budget"},
                        fmt::format("blocks {} to {} do not fit into an activation_budget of {}", bounds[k],
                                    bounds[k + 1] - 1, to_text(*o.activation_budget)),
                        fmt::format("they need at least {}", to_text(Bytes{double(least_budget(chain))}))};
    parts.push_back(std::move(*found));
  }
  return joined(std::move(parts));
}

}  // namespace orrery
