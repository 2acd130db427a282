// SPDX-License-Identifier: Apache-2.0
// Angel-PTM (Nie et al., PVLDB 16(12), arXiv 2303.02868): memory in pages, moved by one schedule over the life-times of
// all tensors. The paper's abstract is public and its text was not read: what the abstract leaves open is ours.
//   pages      a tensor lies in a run of whole pages, whose last one it may share with one other
//   schedule   weights come just before a pass uses them and leave behind; then each move is made as early as what is
//              projected to be on the device allows; what memory is left holds optimizer states, the largest first,
//              which are updated there (lifetime.hpp)
//   host       16 bytes per parameter in 16 bits: weights, gradients, master copies and moments
//   tiers      states on the host or on a disk, from which they come to the host to be updated
//   lock-free  passes never wait for the updater (lock_free.cpp)
// Room for pages at an op: usable · memory − what lies beside them now and at the next op − a run on its way down.
#include <algorithm>

#include "sim/base/option_error.hpp"
#include "sim/strategy/offload/angel_ptm.hpp"
#include "sim/strategy/offload/chunk_moves.hpp"
#include "sim/strategy/offload/lifetime.hpp"
#include "sim/strategy/offload/strategies.hpp"

namespace orrery {

ChunkLayout angel_pages(const Plan& plan, const Updates& updates, const AngelOptions& o) {
  if (updates.all.empty()) return {};
  const DType type = plan.tensors[updates.all.front().weight.index()].dtype;
  return lay_out_pages(plan, updates, std::max<std::int64_t>(1, std::int64_t(o.page.base() / size_of(type, 1).base())));
}

namespace {

ChunkDecision decide(const ChunkTrace& trace, const AngelOptions& o) {
  ChunkDecision out;
  out.places.resize(trace.layout.size());
  const std::vector<std::int64_t> leaving = trace.on_their_way();
  const auto usable = static_cast<std::int64_t>(o.usable * o.device_memory.base());
  const auto room = [&](std::size_t s) { return usable - trace.beside[s] - leaving[s]; };
  out.steps = trace.moving(out.places, room);
  out.cache = schedule_lifetimes(trace.weight_bytes, out.steps, trace.passes);
  if (!o.cache_states) return out;
  const std::vector<bool> stay = choose_residents(out.cache, trace, out.steps);
  for (std::size_t k = 0; k < stay.size(); ++k) out.places[k] = {.weights_stay = stay[k], .states_stay = stay[k]};
  leave_out(out.cache, stay);
  out.steps = trace.moving(out.places, room);
  return out;
}

class AngelPtm final : public TierStrategy {
 public:
  explicit AngelPtm(AngelOptions o) : TierStrategy{"angel-ptm", o.parallel}, o_{std::move(o)} {}

 protected:
  void check(const TrainOptions& o) const override {
    if (!o_.lock_free) return;
    if (o.optimizer.kind != OptimizerKind::AdamW)
      throw OptionError{{"lock_free"},
                        "a lock-free update is AdamW's: the first step has none of some weights",
                        "use `optimizer: {kind: adamw}`"};
    if (o.optimizer.clip > 0)
      throw OptionError{
          {"lock_free"}, "a lock-free update does not know the norm of all gradients", "use `optimizer: {clip: 0}`"};
  }

  Plan move_tensors(const Plan& plan, const TrainOptions&, const WorkspaceModel* workspaces) const override {
    if (o_.lock_free) return update_lock_free(plan, o_, workspaces);
    const ChunkRules rules{
        .travel = {.memory = o_.memory,
                   .in = Stream::CopyIn,
                   .out = Stream::CopyOut,
                   .early = true,
                   .keep_clean = true,
                   .own_gradients = o_.own_gradients,
                   .states = o_.tier_of_states(),
                   .buffers = o_.buffers},
        .lay_out = [this](const Plan& p, ClassId, const Updates& u) { return angel_pages(p, u, o_); },
        .decide = [this](const ChunkTrace& t) { return decide(t, o_); }};
    return move_chunks(plan, rules, workspaces);
  }

 private:
  AngelOptions o_;
};

}  // namespace

std::unique_ptr<Strategy> make_angel_ptm(const Node& node) {
  AngelOptions o;
  read_options(node, o);
  return std::make_unique<AngelPtm>(std::move(o));
}

std::vector<OptionInfo> angel_ptm_options() { return describe_options<AngelOptions>(); }

}  // namespace orrery
