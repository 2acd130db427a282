// SPDX-License-Identifier: Apache-2.0
// ZeRO-Offload (Ren et al., USENIX ATC 2021, arXiv 2101.06840): optimizer states and the update live on the host.
//   device  weights and activations; gradients only until they have gone down
//   host    gradients, a copy of the weights, the states: in bf16 16 bytes per parameter
//   moved   per step and parameter one gradient down, beside the backward pass, and one weight up behind its update
// With `delayed` the update of step t runs beside step t + 1, which still computes with the weights of before; its
// weights go up at the end of that step. With replicas each rank moves what it updates (zero1 to zero3).
#include "sim/base/option_error.hpp"
#include "sim/strategy/offload/strategies.hpp"
#include "sim/strategy/offload/throttle.hpp"
#include "sim/strategy/offload/tier_strategy.hpp"
#include "sim/strategy/offload/updates.hpp"

namespace orrery {
namespace {

struct ZeroOffloadOptions {
  ParallelOptions parallel;
  HostMemory memory = HostMemory::Pinned;
  bool delayed = false, overlap = true;
  std::int64_t in_flight = 2;

  template <class V>
  void visit(V& v) {
    v.field("parallel", parallel, kParallelHelp);
    v.field("memory", memory, "host memory that copies go to and come from");
    v.field("delayed", delayed, "update beside the next step, with gradients that are one step old");
    v.field("overlap", overlap, "copy beside the passes; else the device waits for each copy");
    v.field("in_flight", in_flight, "blocks of the backward pass whose gradients may be on their way down at once",
            at_least(1));
  }
};

class GradientOffload {
 public:
  GradientOffload(const Plan& plan, const ZeroOffloadOptions& options) : plan_{plan}, o_{options}, r_{plan} {}

  Plan run(const WorkspaceModel* workspaces) {
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) run_class(ClassId{c});
    return r_.take(workspaces);
  }

 private:
  struct Home {
    TensorId weight, gradient;  // on the host
  };

  void run_class(ClassId c);
  void make_homes();
  void emit_optimizer(OpId id);
  void emit_pass(OpId id, Throttle& throttle);
  void place(ClassId c);
  Stream down() const { return o_.overlap ? Stream::CopyOut : Stream::Compute; }
  Stream up() const { return o_.overlap ? Stream::CopyIn : Stream::Compute; }

  const Plan& plan_;
  const ZeroOffloadOptions& o_;
  PlanRewriter r_;
  Updates updates_;
  std::vector<Home> homes_;                                               // per update
  std::unordered_map<std::uint32_t, std::size_t> by_op_, by_gradient_;    // op; tensor
  std::unordered_map<std::uint32_t, std::vector<std::size_t>> complete_;  // behind which op
};

void GradientOffload::make_homes() {
  homes_.clear(), by_op_.clear(), by_gradient_.clear(), complete_.clear();
  for (std::size_t i = 0; i < updates_.all.size(); ++i) {
    const Update& u = updates_.all[i];
    const auto on_host = [&](TensorId t) {
      const Tensor& tensor = plan_.tensors[t.index()];
      return r_.builder().tensor(
          plan_.names[tensor.name], plan_.shape(t),
          {.dtype = tensor.dtype, .role = tensor.role, .tier = tier_of(o_.memory), .persistent = true});
    };
    homes_.push_back({on_host(u.weight), on_host(u.gradient)});
    for (const TensorId s : u.states) r_.put(s, on_host(s));
    const TensorId gradient = plan_.owner(u.gradient);
    if (u.starts_fresh)
      r_.put(gradient,
             r_.builder().tensor(plan_.name_of(gradient), plan_.shape(gradient),
                                 {.dtype = plan_.tensors[gradient.index()].dtype, .role = TensorRole::Gradient}));
    by_op_[u.op.value] = by_gradient_[u.gradient.value] = i;
    complete_[u.complete.value].push_back(i);
  }
}

/// Norm and update, on the host where they touch what lies there.
void GradientOffload::emit_optimizer(OpId id) {
  const Work& work = plan_.work(id);
  if (std::holds_alternative<SumSquares>(work)) {
    const TensorId g = plan_.operands_of(plan_[id])[0].tensor();
    r_.emit(
        id,
        {.work = on_host(work), .stream = Stream::Host, .instead = {{g, homes_[by_gradient_.at(g.value)].gradient}}});
    return;
  }
  const auto it = by_op_.find(id.value);
  if (it == by_op_.end()) {
    r_.emit(id);
    return;
  }
  const Update& u = updates_.all[it->second];
  const Home& home = homes_[it->second];
  r_.emit(id, {.work = on_host(work, o_.delayed ? 1 : 0),
               .stream = Stream::Host,
               .instead = {{u.weight, home.weight}, {u.gradient, home.gradient}}});
}

void GradientOffload::emit_pass(OpId id, Throttle& throttle) {
  r_.emit(id);
  throttle.begin(r_, plan_[id]);
  const auto it = complete_.find(id.value);
  if (it == complete_.end()) return;
  for (const std::size_t i : it->second) {
    const TensorId gradient = updates_.all[i].gradient;
    throttle.moved(r_.copy("down." + std::string{plan_.name_of(gradient)}, r_[gradient], homes_[i].gradient, down()));
  }
}

/// The weights lie on the device and, as the update reads them, on the host.
void GradientOffload::place(ClassId c) {
  std::vector<ParameterPlacement> copies;
  std::vector<ParameterPlacement>& all = r_.builder().plan().placements;
  for (ParameterPlacement& p : all) {
    if (p.rank_class != c) continue;
    const auto old = std::find_if(plan_.placements.begin(), plan_.placements.end(), [&](const ParameterPlacement& q) {
      return q.parameter == p.parameter && q.rank_class == c;
    });
    const Stored gradient = old->gradient;
    if (gradient.tensor.is_none()) continue;
    for (std::size_t i = 0; i < homes_.size(); ++i) {
      if (plan_.owner(updates_.all[i].gradient) != plan_.owner(gradient.tensor)) continue;
      p.gradient = moved(r_, gradient, updates_.all[i], homes_[i].gradient);
      ParameterPlacement copy = p;
      copy.weight = moved(r_, gradient, updates_.all[i], homes_[i].weight);
      copies.push_back(std::move(copy));
    }
  }
  all.insert(all.end(), copies.begin(), copies.end());
}

void GradientOffload::run_class(ClassId c) {
  r_.begin_class(c);
  updates_ = updates_of(plan_, c);
  make_homes();
  const RankClass& rank_class = plan_.classes[c.index()];
  const auto id_of = [&](std::uint32_t i) { return OpId{std::size_t{rank_class.first_op + i}}; };
  if (o_.delayed)
    for (std::uint32_t i = 0; i < rank_class.num_ops; ++i)
      if (updates_.belongs[i]) emit_optimizer(id_of(i));
  Throttle throttle{o_.in_flight};
  for (std::uint32_t i = 0; i < rank_class.num_ops; ++i) {
    const OpId id = id_of(i);
    if (!updates_.belongs[i]) {
      emit_pass(id, throttle);
      continue;
    }
    if (!o_.delayed) emit_optimizer(id);
    const auto it = by_op_.find(id.value);
    if (it == by_op_.end()) continue;
    const TensorId weight = updates_.all[it->second].weight;
    r_.copy("up." + std::string{plan_.name_of(weight)}, homes_[it->second].weight, r_[weight], up());
  }
  r_.end_class();
  place(c);
}

class ZeroOffload final : public TierStrategy {
 public:
  explicit ZeroOffload(ZeroOffloadOptions o) : TierStrategy{"zero-offload", o.parallel}, options_{std::move(o)} {}

 protected:
  void check(const TrainOptions& o) const override {
    if (options_.parallel.data.owners)
      throw OptionError{{"owners"},
                        "owners of weights update on their devices: zero-offload updates on the host",
                        "leave `owners` out"};
    if (options_.delayed && o.optimizer.kind != OptimizerKind::AdamW)
      throw OptionError{
          {"delayed"}, "a delayed update is AdamW's: the first step has none", "use `optimizer: {kind: adamw}`"};
  }
  Plan move_tensors(const Plan& plan, const TrainOptions&, const WorkspaceModel* workspaces) const override {
    return GradientOffload{plan, options_}.run(workspaces);
  }

 private:
  ZeroOffloadOptions options_;
};

}  // namespace

std::unique_ptr<Strategy> make_zero_offload(const Node& node) {
  ZeroOffloadOptions o;
  read_options(node, o);
  return std::make_unique<ZeroOffload>(std::move(o));
}

std::vector<OptionInfo> zero_offload_options() { return describe_options<ZeroOffloadOptions>(); }

}  // namespace orrery
