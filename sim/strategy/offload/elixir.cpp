// SPDX-License-Identifier: Apache-2.0
// Elixir (Huang et al., arXiv 2212.05339 v3): chunks that are cached in blocks of the device, sized and placed by
// search.
//   chunks    weights in the order of their first use; what several modules use (tied embeddings) has a chunk of its
//   own
//             that stays
//   cache     `blocks` of room, one chunk each; who is needed last leaves. The first time in a step a chunk comes as
//   its
//             master copy, which the device rounds; its first departure writes the rounded weights down, later ones are
//             free; when its gradients are complete they go down in the place of the weights
//   resident  chunks whose weights and states stay on the device, which updates them
//   search    the size that moves least (Belady over the ops of the plan), then memory goes to what saves most per
//   byte:
//             another block (I), or another chunk's states (J), by the rates of links and updates
// The device has usable · (memory − driver − activation_margin · what lies beside chunks), without one largest tensor.
// With `overlap` copies have streams of their own, one chunk comes ahead, and two blocks are kept for what is on its
// way. On one rank a resident chunk needs no block: it is used where it lies. Several ranks: `parallel: {mesh: fsdp2,
// data: {kind: zero3}}`; chunks hold what a rank owns, buckets are what is gathered, `gathered` of them at a time.
#include <algorithm>
#include <map>

#include "sim/base/option_error.hpp"
#include "sim/strategy/offload/chunk_moves.hpp"
#include "sim/strategy/offload/elixir_search.hpp"
#include "sim/strategy/offload/gather_cache.hpp"
#include "sim/strategy/offload/strategies.hpp"

namespace orrery {
namespace {

struct ElixirOptions {
  ParallelOptions parallel;
  Bytes device_memory{0}, driver{2.0 * 1024 * 1024 * 1024}, least_chunk{32.0 * 1024 * 1024};
  double usable = 0.95, activation_margin = 1.25;
  HostMemory memory = HostMemory::Pinned;
  bool overlap = true;
  std::int64_t chunk = 0, blocks = 0, resident = -1, gathered = 0;
  ProfileOptions profile;

  template <class V>
  void visit(V& v) {
    v.field("parallel", parallel, kParallelHelp);
    v.required("device_memory", device_memory, "memory of a device that the step may count on", more_than(Bytes{0}));
    v.field("driver", driver, "part of it that the driver has", at_least(Bytes{0}));
    v.field("usable", usable, "part of the rest that is used", between(0, 1));
    v.field("activation_margin", activation_margin, "room for what lies beside chunks, over what that takes",
            at_least(1));
    v.field("least_chunk", least_chunk, "the smallest chunk of the search, doubled until a tensor fits",
            at_least(Bytes{64}));
    v.field("memory", memory, "host memory that copies go to and come from");
    v.field("overlap", overlap, "copy beside the passes; else the device waits for each copy");
    v.field("chunk", chunk, "elements of a chunk; 0: searched", at_least(0));
    v.field("blocks", blocks, "chunks of room that weights which come and go share; 0: searched", at_least(0));
    v.field("resident", resident, "chunks whose states stay on the device; -1: searched", at_least(-1));
    v.field("gathered", gathered,
            "replicas: buckets of gathered weights that are on a device at a time; 0: each pass gathers anew",
            at_least(0));
    v.field("profile", profile, "rates that the search weighs blocks against states with");
  }
};

/// The plan of one class, tensor by tensor.
class Profiled {
 public:
  Profiled(const Plan& plan, ClassId c, const Updates& updates, const WorkspaceModel* workspaces)
      : plan_{plan},
        layout_{lay_out_chunks(plan, updates, 1, std::vector<bool>(updates.all.size(), true))},
        actions_{chunk_actions(plan, c, updates, layout_, true)},
        trace_{trace_chunks(plan, c, updates, layout_, actions_, workspaces)} {}

  /// Forward passes come back to it after they have used others.
  std::vector<bool> used_apart() const {
    std::vector<bool> out(layout_.size(), false);
    std::vector<std::int64_t> last(layout_.size(), -1);  // the use it was in last
    std::int64_t use = 0;
    for (std::size_t s = 0; s < actions_.size(); ++s) {
      const Op& op = plan_[actions_[s].op];
      const auto& needed = trace_.steps[s].needed;
      if (actions_[s].deed != ChunkDeed::Emit || op.phase != Phase::Forward || op.microbatch != 0 || needed.empty())
        continue;
      for (const std::uint32_t t : needed) out[t] = out[t] || (last[t] >= 0 && last[t] < use);
      ++use;
      for (const std::uint32_t t : needed) last[t] = use;
    }
    return out;
  }

  /// Elements of the weights of the largest block that is run again.
  std::int64_t largest_region() const {
    std::map<std::int16_t, std::vector<bool>> used;
    for (std::size_t s = 0; s < actions_.size(); ++s) {
      const Op& op = plan_[actions_[s].op];
      if (actions_[s].deed != ChunkDeed::Emit || op.phase != Phase::Recompute) continue;
      std::vector<bool>& here = used[op.layer];
      here.resize(layout_.size());
      for (const std::uint32_t t : trace_.steps[s].needed) here[t] = true;
    }
    std::int64_t most = 0;
    for (const auto& [layer, tensors] : used) {
      std::int64_t sum = 0;
      for (std::size_t t = 0; t < tensors.size(); ++t) sum += tensors[t] ? layout_.sizes[t] : 0;
      most = std::max(most, sum);
    }
    return most;
  }

  std::vector<std::vector<std::uint32_t>> steps() const {
    std::vector<std::vector<std::uint32_t>> out;
    for (const CacheStep& s : trace_.steps)
      if (!s.needed.empty()) out.push_back(s.needed);
    return out;
  }

  const std::vector<std::int64_t>& sizes() const { return layout_.sizes; }
  std::int64_t beside() const { return trace_.most_beside(); }

 private:
  const Plan& plan_;
  ChunkLayout layout_;
  std::vector<ChunkAction> actions_;
  ChunkTrace trace_;
};

class Elixir final : public TierStrategy {
 public:
  explicit Elixir(ElixirOptions o) : TierStrategy{"elixir", o.parallel}, o_{std::move(o)} {}

 protected:
  Plan move_tensors(const Plan& lowered, const TrainOptions&, const WorkspaceModel* workspaces) const override {
    const Plan kept = o_.gathered > 0 ? keep_gathered(lowered, keep_blocks(o_.gathered), nullptr) : Plan{};
    std::map<std::size_t, Chosen> chosen;  // by class
    const ChunkRules rules{.travel = {.memory = o_.memory,
                                      .in = o_.overlap ? Stream::CopyIn : Stream::Compute,
                                      .out = o_.overlap ? Stream::CopyOut : Stream::Compute,
                                      .early = true,
                                      .keep_clean = true,
                                      .first = FirstArrival::Master,
                                      .states = tier_of(o_.memory)},
                           .lay_out =
                               [&](const Plan& p, ClassId c, const Updates& u) {
                                 const Chosen& now = chosen[c.index()] = choose(p, c, u, workspaces);
                                 return lay_out_chunks(p, u, now.choice.chunk, now.alone);
                               },
                           .decide = [&](const ChunkTrace& t) { return decide(t, chosen.at(t.rank_class.index())); }};
    return move_chunks(o_.gathered > 0 ? kept : lowered, rules, workspaces);
  }

 private:
  struct Chosen {
    ElixirChoice choice;
    std::vector<bool> alone;
  };

  ElixirCase ask(const Plan& plan, const Updates& updates, const Profiled& p) const {
    const Update& u = updates.all.front();
    const DType type = plan.tensors[u.weight.index()].dtype, wide = state_type(plan, u);
    const double weight = size_of(type, 1).base(), state = size_of(wide, 1).base();
    const bool master = can_have_master(plan, u);
    const double states = state * (double(u.states.size()) + (lacks_master(plan, u) ? 1 : 0));
    ElixirCase c;
    c.tensors = p.sizes();
    c.alone = p.used_apart();
    c.steps = p.steps();
    c.region = p.largest_region();
    c.least = static_cast<std::int64_t>(o_.least_chunk.base() / weight);
    c.grain = std::max<std::int64_t>(1, static_cast<std::int64_t>(1024 / weight));
    c.state_ratio = (weight + states) / weight;
    c.scratch = master && wide != type ? state / weight : 0;
    c.overlap = o_.overlap;
    double room = o_.usable * (o_.device_memory.base() - o_.driver.base() - o_.activation_margin * double(p.beside()));
    room /= weight;
    room -= double(*std::max_element(c.tensors.begin(), c.tensors.end()));
    for (std::size_t t = 0; t < c.tensors.size(); ++t) room -= c.alone[t] ? double(c.tensors[t]) : 0;
    c.capacity = static_cast<std::int64_t>(std::max(room, 0.0));
    const double ranks = double(mesh().size());
    const ElixirValues v = elixir_values(o_.profile.over_a100(ranks), ranks, weight, master ? state : weight, states);
    c.states_first = v.state > v.cached;
    return c;
  }

  Chosen choose(const Plan& plan, ClassId c, const Updates& updates, const WorkspaceModel* workspaces) const {
    if (updates.all.empty()) return {};
    const Profiled profiled{plan, c, updates, workspaces};
    const ElixirCase asked = ask(plan, updates, profiled);
    Chosen out{.choice = elixir_search(asked), .alone = asked.alone};
    if (o_.chunk > 0) {
      out.choice.chunk = o_.chunk;
      const ChunkLayout layout = lay_out_chunks(plan, updates, o_.chunk, asked.alone);
      const auto kept = std::count(asked.alone.begin(), asked.alone.end(), true);
      elixir_spend(asked, static_cast<std::int64_t>(layout.size()) - kept, 1, out.choice);
    } else if (out.choice.chunk == 0) {
      throw OptionError{{"device_memory", "least_chunk"},
                        "no size of chunks leaves room on the device for what one op needs",
                        "allow more device memory, a smaller `least_chunk`, or recompute activations"};
    }
    if (o_.blocks > 0) out.choice.blocks = o_.blocks;
    if (o_.resident >= 0) out.choice.resident = o_.resident;
    return out;
  }

  ChunkDecision decide(const ChunkTrace& trace, const Chosen& chosen) const {
    ChunkDecision out;
    std::int64_t resident = chosen.choice.resident, moving = 0, size = 0;
    for (std::size_t k = 0; k < trace.layout.size(); ++k) {
      const bool alone = chosen.alone[trace.layout.members[k].front()];
      const bool stays = !alone && resident > 0;
      resident -= stays;
      out.places.push_back({.weights_stay = alone || stays, .states_stay = stays});
      moving += !alone && !stays;
      if (!alone) size = trace.weight_bytes[k];
    }
    if (moving == 0) return out;
    const std::int64_t blocks = std::min(chosen.choice.blocks, moving);
    // Two blocks are for what is on its way, where not all chunks have one.
    const std::int64_t held = o_.overlap && blocks < moving ? blocks - 2 : blocks;
    out.blocks = blocks;
    out.steps = trace.moving(out.places, [&](std::size_t) { return held * size; });
    out.cache = plan_cache(trace.weight_bytes, out.steps, Eviction::Belady);
    for (CacheStep& s : out.steps) s.capacity = blocks * size;
    if (o_.overlap) come_ahead(out.cache, trace.weight_bytes, out.steps, 1);
    return out;
  }

  ElixirOptions o_;
};

}  // namespace

std::unique_ptr<Strategy> make_elixir(const Node& node) {
  ElixirOptions o;
  read_options(node, o);
  if (o.gathered > 0 && o.parallel.data.kind != DataKind::Zero3)
    throw OptionError{{"gathered"},
                      "`gathered` counts weights that replicas split",
                      "use `parallel: {mesh: fsdp2, data: {kind: zero3}}`, or leave it out"};
  return std::make_unique<Elixir>(std::move(o));
}

std::vector<OptionInfo> elixir_options() { return describe_options<ElixirOptions>(); }

}  // namespace orrery
