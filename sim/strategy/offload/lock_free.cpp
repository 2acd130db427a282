// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/option_error.hpp"
#include "sim/strategy/offload/angel_ptm.hpp"
#include "sim/strategy/offload/lifetime.hpp"
#include "sim/strategy/offload/throttle.hpp"

namespace orrery {

namespace {

/// a += b on the host: a step of gradient descent at the rate −1.
Sgd added(std::int64_t elements, DType type) {
  return {.elements = elements, .rate = -1, .momentum = 0, .dtype = type, .on_host = true};
}

/// The gradient of one update in one microbatch, by ops of the class.
struct Contribution {
  std::uint32_t first = UINT32_MAX, last = 0;
};

class LockFree {
 public:
  LockFree(PlanRewriter& r, ClassId c, const Updates& updates, const AngelOptions& options)
      : plan_{r.from()},
        r_{r},
        class_{c},
        updates_{updates},
        o_{options},
        layout_{angel_pages(plan_, updates, options)},
        ops_{plan_.ops_of(plan_.classes[c.index()])} {}

  void run(const WorkspaceModel* workspaces);

 private:
  struct Run {  // of pages
    TensorId home, here, gradient, master, pending;
    std::vector<TensorId> moments;
    std::size_t group = 0;
  };

  DType dtype_of(const Update& u) const { return plan_.tensors[u.weight.index()].dtype; }
  std::size_t published_behind(std::size_t microbatch) const { return (microbatch + groups_ - 1) % groups_; }
  bool group_outlives(std::size_t group) const { return group + 1 == groups_; }  // a step
  const Update& first_of(std::uint32_t k) const { return updates_.all[layout_.members[k].front()]; }
  TensorId make(std::uint32_t k, std::string_view what, DType type, TensorRole role, Tier tier, bool persistent);
  TensorId part(TensorId run, std::uint32_t update, std::string_view what);

  void find_contributions();
  std::vector<std::int64_t> gradient_bytes() const;
  void form_groups();
  void schedule(const WorkspaceModel* workspaces);
  void make_runs();
  void stand(std::uint32_t run, TensorId where);
  void move(std::size_t step);
  void begin_gradients(std::uint32_t op);
  void end_gradients(std::uint32_t op, Throttle& throttle);
  void start(std::size_t group, bool delayed);
  void update(std::uint32_t run, bool delayed);
  void publish(std::size_t group);
  void at_microbatch(std::size_t before);

  const Plan& plan_;
  PlanRewriter& r_;
  ClassId class_;
  const Updates& updates_;
  const AngelOptions& o_;
  ChunkLayout layout_;
  std::span<const Op> ops_;
  std::size_t groups_ = 1;
  std::vector<std::vector<Contribution>> contributions_;                       // per update and microbatch
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> begin_, end_;  // updates, by op
  std::vector<ChunkAction> actions_;
  CachePlan cache_;
  std::size_t next_ = 0;  // of its events
  std::vector<Run> runs_;
  std::vector<OpId> written_;  // per run whose states went back to a disk
  OpId computed_;
};

/// Throws UserError where microbatches do not come one after another, or gradients are summed once behind all.
void LockFree::find_contributions() {
  std::size_t last = 0;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    if (updates_.belongs[i]) continue;
    if (ops_[i].stream == Stream::Compute && ops_[i].microbatch < last)
      throw OptionError{
          {"lock_free"},
          "a lock-free update takes gradients between microbatches, which a pipeline computes side by side",
          "leave out the axis pp, or `lock_free`"};
    if (ops_[i].stream == Stream::Compute) last = ops_[i].microbatch;
  }
  groups_ = last + 1;
  contributions_.assign(updates_.all.size(), std::vector<Contribution>(groups_));
  std::unordered_map<std::uint32_t, std::uint32_t> by_gradient;
  for (std::uint32_t i = 0; i < updates_.all.size(); ++i) by_gradient[plan_.owner(updates_.all[i].gradient).value] = i;
  for (std::uint32_t i = 0; i < ops_.size(); ++i) {
    if (updates_.belongs[i]) continue;
    for (const Operand& o : plan_.operands_of(ops_[i])) {
      const auto it = by_gradient.find(plan_.owner(o.tensor()).value);
      if (it == by_gradient.end()) continue;
      const auto* sum = std::get_if<Collective>(&plan_.work(ops_[i]));
      if (sum != nullptr && sum->kind == CollectiveKind::AllReduce)
        throw OptionError{
            {"lock_free"},
            "a lock-free update takes gradients of each microbatch, which replicas sum behind all of them",
            "use one rank, or `parallel: {mesh: fsdp2, data: {kind: zero3}}`"};
      Contribution& c = contributions_[it->second][ops_[i].microbatch];
      c.first = std::min(c.first, i);
      c.last = i;
    }
  }
  for (std::uint32_t u = 0; u < contributions_.size(); ++u)
    for (const Contribution& c : contributions_[u]) {
      if (c.first == UINT32_MAX) continue;
      begin_[c.first].push_back(u);
      end_[c.last].push_back(u);
    }
}

/// Runs of as many elements as can be, in order.
void LockFree::form_groups() {
  const double all = double(layout_.elements());
  double before = 0;
  for (const std::int64_t size : layout_.sizes) {
    runs_.emplace_back().group = std::min(groups_ - 1, static_cast<std::size_t>(before / all * double(groups_)));
    before += double(size);
  }
}

/// Gradients on the device at each op: until the end of the block behind the one that completes them.
std::vector<std::int64_t> LockFree::gradient_bytes() const {
  std::vector<std::uint32_t> block(ops_.size(), 0);
  const Op* last = nullptr;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    block[i] = i == 0 ? 0 : block[i - 1];
    if (ops_[i].stream != Stream::Compute || ops_[i].layer < 0) continue;
    block[i] += last != nullptr && (last->layer != ops_[i].layer || last->microbatch != ops_[i].microbatch ||
                                    last->phase != ops_[i].phase);
    last = &ops_[i];
  }
  std::vector<std::int64_t> change(ops_.size() + 1, 0);
  for (std::size_t u = 0; u < contributions_.size(); ++u)
    for (const Contribution& c : contributions_[u]) {
      if (c.first == UINT32_MAX) continue;
      const auto bytes =
          static_cast<std::int64_t>(ceil_to(plan_.size(plan_.owner(updates_.all[u].gradient)), kAllocationUnit).base());
      const auto end = std::upper_bound(block.begin(), block.end(), block[c.last] + 1);
      change[c.first] += bytes;
      change[static_cast<std::size_t>(end - block.begin())] -= bytes;
    }
  for (std::size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
  return change;
}

void LockFree::schedule(const WorkspaceModel* workspaces) {
  const std::uint32_t first = plan_.classes[class_.index()].first_op;
  for (std::uint32_t i = 0; i < ops_.size(); ++i)
    if (!updates_.belongs[i]) actions_.push_back({ChunkDeed::Emit, OpId{std::size_t{first + i}}, 0});
  const ChunkTrace trace = trace_chunks(plan_, class_, updates_, layout_, actions_, workspaces, Beside::NoGradients);
  const std::vector<std::int64_t> gradients = gradient_bytes();
  const auto usable = static_cast<std::int64_t>(o_.usable * o_.device_memory.base());
  std::vector<CacheStep> steps = trace.moving(std::vector<ChunkPlace>(layout_.size()), [&](std::size_t s) {
    const std::size_t i = actions_[s].op.value - first;
    return usable - trace.beside[s] - std::max(gradients[i], gradients[i + 1]);
  });
  std::size_t microbatch = 0;
  for (std::size_t s = 0; s < actions_.size(); ++s) {
    const Op& op = plan_[actions_[s].op];
    if (op.stream != Stream::Compute || op.microbatch <= microbatch) continue;
    microbatch = op.microbatch;  // ahead of it weights are published: those on the device are old
    for (std::uint32_t k = 0; k < runs_.size(); ++k)
      if (runs_[k].group == published_behind(microbatch - 1)) steps[s].banned.push_back(k);
  }
  cache_ = schedule_lifetimes(trace.weight_bytes, steps, trace.passes);
}

TensorId LockFree::make(std::uint32_t k, std::string_view what, DType type, TensorRole role, Tier tier,
                        bool persistent) {
  return r_.builder().tensor(fmt::format("run.{}.{}", k, what), Shape{layout_.sizes[k]},
                             {.dtype = type, .role = role, .tier = tier, .persistent = persistent});
}

TensorId LockFree::part(TensorId run, std::uint32_t i, std::string_view what) {
  Layout layout = Layout::contiguous(plan_.shape(updates_.all[i].weight));
  layout.offset = layout_.slots[i].offset;
  const Tensor& weight = plan_.tensors[updates_.all[i].weight.index()];
  return r_.builder().view(run, fmt::format("{}.{}", plan_.names[weight.name], what), layout);
}

/// The last group is updated while the next step begins, so its new weights outlive a step.
void LockFree::make_runs() {
  const Tier host = tier_of(o_.memory), states = o_.tier_of_states();
  for (std::uint32_t k = 0; k < layout_.size(); ++k) {
    const Update& u = first_of(k);
    const DType type = dtype_of(u), wide = state_type(plan_, u);
    Run& run = runs_[k];
    run.home = make(k, "weights", type, TensorRole::Parameter, host, true);
    run.gradient = make(k, "gradient", plan_.tensors[u.gradient.index()].dtype, TensorRole::Gradient, host, true);
    if (lacks_master(plan_, u)) run.master = make(k, "master", wide, TensorRole::OptimizerState, states, true);
    for (std::size_t s = 0; s < u.states.size(); ++s)
      run.moments.push_back(make(k, fmt::format("state{}", s), wide, TensorRole::OptimizerState, states, true));
    if (group_outlives(run.group)) run.pending = make(k, "pending", type, TensorRole::Parameter, host, true);
    stand(k, run.home);
  }
}

void LockFree::stand(std::uint32_t k, TensorId where) {
  for (const std::uint32_t i : layout_.members[k])
    r_.put(plan_.owner(updates_.all[i].weight), where, layout_.slots[i].offset);
}

/// Weights do not change on the device: they leave without a copy.
void LockFree::move(std::size_t step) {
  for (; next_ < cache_.events.size() && cache_.events[next_].step <= step; ++next_) {
    const CacheEvent& e = cache_.events[next_];
    Run& run = runs_[e.chunk];
    if (!e.comes) {
      stand(e.chunk, run.home);
      continue;
    }
    run.here = make(e.chunk, "here", dtype_of(first_of(e.chunk)), TensorRole::Parameter, Tier::Device, false);
    r_.copy(fmt::format("come.{}", e.chunk), run.home, run.here, Stream::CopyIn);
    r_.order(computed_);
    stand(e.chunk, run.here);
  }
}

/// Each microbatch adds up its gradients in a tensor of its own.
void LockFree::begin_gradients(std::uint32_t op) {
  const auto it = begin_.find(op);
  if (it == begin_.end()) return;
  for (const std::uint32_t i : it->second) {
    const Update& u = updates_.all[i];
    const TensorId owner = plan_.owner(u.gradient);
    const DType type = plan_.tensors[owner.index()].dtype;
    const TensorId fresh =
        r_.builder().tensor(plan_.name_of(owner), plan_.shape(owner), {.dtype = type, .role = TensorRole::Gradient});
    r_.put(owner, fresh);
    if (ops_[op].microbatch > 0 || !u.starts_fresh)
      r_.builder().add("zero", Fill{.elements = plan_.shape(owner).elements(), .dtype = type}, {writes(fresh)});
  }
}

/// Goes down, onto what the updater has not taken yet; the first one behind the taking is put in its place.
void LockFree::end_gradients(std::uint32_t op, Throttle& throttle) {
  const auto it = end_.find(op);
  if (it == end_.end()) return;
  for (const std::uint32_t i : it->second) {
    const Update& u = updates_.all[i];
    const Run& run = runs_[layout_.slots[i].chunk];
    const TensorId from = r_[u.gradient], into = part(run.gradient, i, "gradient");
    const std::string_view name = plan_.name_of(u.gradient);
    const DType type = r_.builder().plan().tensors[into.index()].dtype;
    const bool first = ops_[op].microbatch == (run.group + 1) % groups_;
    const TensorId to =
        first ? into
              : r_.builder().tensor(fmt::format("{}.stage", name), plan_.shape(u.weight),
                                    {.dtype = type, .role = TensorRole::Gradient, .tier = tier_of(o_.memory)});
    throttle.moved(r_.copy(fmt::format("down.{}", name), from, to, Stream::CopyOut));
    if (!first)
      r_.builder().add(fmt::format("add.{}", name), added(plan_.shape(u.weight).elements(), type),
                       {updates(into), reads(to)}, Stream::CopyOut);
  }
}

void LockFree::start(std::size_t group, bool delayed) {
  r_.builder().set_phase(Phase::Optimizer);
  for (std::uint32_t k = 0; k < runs_.size(); ++k)
    if (runs_[k].group == group) update(k, delayed);
}

/// Takes the gradients, brings the states where they are on a disk, updates tensor by tensor.
void LockFree::update(std::uint32_t k, bool delayed) {
  Run& run = runs_[k];
  const Update& first = first_of(k);
  const Tier host = tier_of(o_.memory);
  const DType gradient = r_.builder().plan().tensors[run.gradient.index()].dtype;
  const TensorId taken = make(k, "taken", gradient, TensorRole::Gradient, host, false);
  r_.copy(fmt::format("take.{}", k), run.gradient, taken, Stream::Host);
  const bool outlives = group_outlives(run.group);
  if (!outlives) run.pending = make(k, "pending", dtype_of(first), TensorRole::Parameter, host, false);
  std::vector<std::pair<TensorId, TensorId>> staged;  // on the host, at home
  const auto limit = static_cast<std::size_t>(o_.buffers);
  const OpId behind = written_.size() >= limit ? written_[written_.size() - limit] : OpId{};
  const auto bring = [&](TensorId home) {
    if (o_.states == Store::Host) return home;
    const TensorId there = make(k, "staged", state_type(plan_, first), TensorRole::OptimizerState, host, false);
    r_.copy(fmt::format("read.{}", k), home, there, Stream::Disk);
    r_.order(behind);
    staged.emplace_back(there, home);
    return there;
  };
  const TensorId master = run.master.is_none() ? run.master : bring(run.master);
  std::vector<TensorId> moments;
  for (const TensorId m : run.moments) moments.push_back(bring(m));
  for (const std::uint32_t i : layout_.members[k]) {
    const Update& u = updates_.all[i];
    const TensorId weight = part(run.pending, i, "pending");
    std::vector<Operand> operands{{weight, outlives ? Access::ReadWrite : Access::Write},
                                  reads(part(taken, i, "taken"))};
    for (const TensorId m : moments) operands.push_back(updates(part(m, i, "state")));
    if (!master.is_none()) operands.push_back(updates(part(master, i, "master")));
    for (const Operand& o : plan_.operands_of(plan_[u.op]).subspan(2 + u.states.size()))
      operands.emplace_back(r_[o.tensor()], o.access());
    r_.builder().add(plan_.name_of(plan_[u.op]), on_host(with_master(plan_.work(u.op)), delayed ? 1 : 0), operands,
                     Stream::Host);
  }
  for (const auto& [there, home] : staged) {
    const OpId back = r_.copy(fmt::format("write.{}", k), there, home, Stream::Disk);
    if (home == staged.back().second) written_.push_back(back);
  }
}

void LockFree::publish(std::size_t group) {
  for (std::uint32_t k = 0; k < runs_.size(); ++k)
    if (runs_[k].group == group) r_.copy(fmt::format("publish.{}", k), runs_[k].pending, runs_[k].home, Stream::Host);
}

/// Behind a microbatch: what was updated beside it, and the next group.
void LockFree::at_microbatch(std::size_t before) {
  publish(published_behind(before));
  if (before + 1 < groups_) start(before, false);
}

void LockFree::run(const WorkspaceModel* workspaces) {
  find_contributions();
  form_groups();
  schedule(workspaces);
  make_runs();
  start(groups_ - 1, true);
  Throttle throttle{2};
  std::size_t microbatch = 0;
  const std::uint32_t first = plan_.classes[class_.index()].first_op;
  for (std::size_t s = 0; s < actions_.size(); ++s) {
    const std::uint32_t i = actions_[s].op.value - first;
    if (ops_[i].stream == Stream::Compute && ops_[i].microbatch > microbatch) {
      at_microbatch(microbatch);
      microbatch = ops_[i].microbatch;
    }
    move(s);
    begin_gradients(i);
    r_.emit(actions_[s].op);
    throttle.begin(r_, ops_[i]);
    if (ops_[i].stream == Stream::Compute) computed_ = r_.last();
    end_gradients(i, throttle);
  }
  at_microbatch(microbatch);
  move(actions_.size());
  r_.end_class();
  place_chunks(r_, class_, updates_, layout_, [this](std::uint32_t k) {
    std::vector<std::pair<std::string_view, TensorId>> copies;
    if (!runs_[k].master.is_none()) copies.emplace_back("master", runs_[k].master);
    if (group_outlives(runs_[k].group)) copies.emplace_back("pending", runs_[k].pending);
    return copies;
  });
}

}  // namespace

Plan update_lock_free(const Plan& plan, const AngelOptions& options, const WorkspaceModel* workspaces) {
  PlanRewriter r{plan};
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    r.begin_class(ClassId{c});
    const Updates updates = updates_of(plan, ClassId{c});
    require_owned(plan, updates);
    LockFree{r, ClassId{c}, updates, options}.run(workspaces);
  }
  return r.take(workspaces);
}

}  // namespace orrery
