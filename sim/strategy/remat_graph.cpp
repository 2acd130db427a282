// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "sim/strategy/remat_plan.hpp"

namespace orrery {
namespace {

/// Who touches an owner, over all ops of a class.
struct OwnerUses {
  OpId first_write, last_write;
  std::uint16_t microbatch = 0;  // of its writer
  bool strays = false;           // used by other microbatches too, or outside of passes
  bool read_backward = false;
};

class LayerPasses {
 public:
  LayerPasses(const Plan& plan, ClassId c, int most_blocks) : plan_{plan}, class_{plan.classes[c.index()]} {
    int blocks = 0;
    each([&](OpId id) { blocks = std::max(blocks, plan_[id].layer + 1); });
    blocks_per_node_ = std::max(1, (blocks + most_blocks - 1) / most_blocks);
    each([&](OpId id) { note(id); });
  }

  std::vector<RematPass> run() {
    std::map<std::uint16_t, std::vector<OpId>> by_microbatch;
    each([&](OpId id) {
      if (is_pass(plan_[id]) && touches_activations(id)) by_microbatch[plan_[id].microbatch].push_back(id);
    });
    std::vector<RematPass> out;
    for (const auto& [microbatch, ops] : by_microbatch) out.push_back(pass_of(ops));
    return out;
  }

 private:
  template <class F>
  void each(F f) const {
    for (std::uint32_t i = 0; i < class_.num_ops; ++i) f(OpId{std::size_t{class_.first_op + i}});
  }
  static bool is_pass(const Op& op) { return op.phase == Phase::Forward || op.phase == Phase::Backward; }
  bool touches_activations(OpId id) const {
    const auto operands = plan_.operands_of(plan_[id]);
    return std::any_of(operands.begin(), operands.end(),
                       [&](const Operand& o) { return is_made_in_passes(plan_, plan_.owner(o.tensor())); });
  }

  void note(OpId id);
  std::vector<std::vector<OpId>> runs_of(const std::vector<OpId>& ops) const;
  std::size_t end_of_saved(const std::vector<OpId>& run) const;
  RematPass pass_of(const std::vector<OpId>& ops) const;
  bool may_run_again(const RematNode& node) const;
  std::int64_t extra_of(const RematNode& node) const;
  std::int64_t bytes(TensorId owner) const {
    return static_cast<std::int64_t>(ceil_to(plan_.size(owner), kAllocationUnit).base());
  }

  const Plan& plan_;
  const RankClass& class_;
  int blocks_per_node_ = 1;
  std::map<std::uint32_t, OwnerUses> uses_;
};

void LayerPasses::note(OpId id) {
  const Op& op = plan_[id];
  for (const Operand& o : plan_.operands_of(op)) {
    const auto [it, is_new] = uses_.try_emplace(plan_.owner(o.tensor()).value);
    OwnerUses& u = it->second;
    if (is_new) u.microbatch = op.microbatch;
    if (o.writes()) {
      if (u.first_write.is_none()) u.first_write = id;
      u.last_write = id;
    }
    u.strays = u.strays || u.microbatch != op.microbatch || !is_pass(op);
    u.read_backward = u.read_backward || (o.reads() && op.phase == Phase::Backward);
  }
}

/// Ops of one direction over the same blocks.
std::vector<std::vector<OpId>> LayerPasses::runs_of(const std::vector<OpId>& ops) const {
  std::vector<std::vector<OpId>> runs;
  std::pair<Phase, int> last;
  for (const OpId id : ops) {
    const Op& op = plan_[id];
    const std::pair<Phase, int> key{op.phase, op.layer < 0 ? -1 : op.layer / blocks_per_node_};
    if (runs.empty() || key != last) runs.emplace_back();
    last = key;
    runs.back().push_back(id);
  }
  return runs;
}

/// Behind the last op of a forward run that makes what a backward pass reads, unless that op is the last one.
std::size_t LayerPasses::end_of_saved(const std::vector<OpId>& run) const {
  for (std::size_t i = run.size() - 1; i-- > 0;)
    for (const Operand& o : plan_.operands_of(plan_[run[i]])) {
      const TensorId owner = plan_.owner(o.tensor());
      if (o.writes() && is_made_in_passes(plan_, owner) && uses_.at(owner.value).read_backward) return i + 1;
    }
  return run.size();
}

/// All that it writes is its own, and all that it reads is as it was.
bool LayerPasses::may_run_again(const RematNode& node) const {
  const std::set<OpId> inside(node.ops.begin(), node.ops.end());
  const OpId first = node.ops.front();
  for (const OpId id : node.ops) {
    if (plan_[id].phase != Phase::Forward || std::holds_alternative<Recv>(plan_.work(id))) return false;
    const auto operands = plan_.operands_of(plan_[id]);
    const bool makes = std::any_of(operands.begin(), operands.end(), [&](const Operand& o) {
      return o.writes() && is_made_in_passes(plan_, plan_.owner(o.tensor()));
    });
    if (!makes) continue;  // sends, gathered weights: not done again
    for (const Operand& o : operands) {
      const TensorId owner = plan_.owner(o.tensor());
      const OwnerUses& u = uses_.at(owner.value);
      const bool own = inside.contains(u.first_write) && inside.contains(u.last_write);
      if (o.writes() && (!own || u.strays || !is_made_in_passes(plan_, owner))) return false;
      const bool later =
          !u.last_write.is_none() && u.last_write >= first && plan_[u.last_write].phase != Phase::Optimizer;
      if (o.reads() && !own && later) return false;
    }
  }
  return true;
}

/// Beside the values of a node, at the worst moment of it: what is born and dies in it, less what is not born yet.
std::int64_t LayerPasses::extra_of(const RematNode& node) const {
  std::map<std::uint32_t, std::size_t> dies;  // owners that are born here and are no values
  std::set<std::uint32_t> values, born;
  for (const TensorId v : node.values) values.insert(v.value);
  for (std::size_t i = 0; i < node.ops.size(); ++i)
    for (const Operand& o : plan_.operands_of(plan_[node.ops[i]])) {
      const TensorId owner = plan_.owner(o.tensor());
      if (!is_made_in_passes(plan_, owner) || uses_.at(owner.value).first_write < node.ops.front()) continue;
      if (!values.contains(owner.value)) dies[owner.value] = i;
    }
  std::int64_t all = 0, live = 0, most = 0;
  for (const TensorId v : node.values) all += bytes(v);
  for (std::size_t i = 0; i < node.ops.size(); ++i) {
    const auto operands = plan_.operands_of(plan_[node.ops[i]]);
    for (const Operand& o : operands) {
      const TensorId owner = plan_.owner(o.tensor());
      if ((dies.contains(owner.value) || values.contains(owner.value)) && born.insert(owner.value).second)
        live += bytes(owner);
    }
    most = std::max(most, live);
    std::set<std::uint32_t> ended;
    for (const Operand& o : operands) ended.insert(plan_.owner(o.tensor()).value);
    for (const std::uint32_t owner : ended)
      if (const auto it = dies.find(owner); it != dies.end() && it->second == i) live -= bytes(TensorId{owner});
  }
  return std::max<std::int64_t>(0, most - all);
}

RematPass LayerPasses::pass_of(const std::vector<OpId>& ops) const {
  RematPass out;
  for (const std::vector<OpId>& run : runs_of(ops)) {
    const bool splits = plan_[run.front()].phase == Phase::Forward && plan_[run.front()].layer >= 0;
    const auto end = static_cast<std::ptrdiff_t>(splits ? end_of_saved(run) : run.size());
    out.nodes.push_back({{run.begin(), run.begin() + end}, {}});
    if (run.begin() + end != run.end()) out.nodes.push_back({{run.begin() + end, run.end()}, {}});
  }
  RematGraph& g = out.graph;
  std::map<std::uint32_t, int> maker;  // of owners
  std::set<std::pair<int, int>> edges;
  double forward = 0;
  for (int n = 0; n < static_cast<int>(out.nodes.size()); ++n) {
    double cost = 0;
    for (const OpId id : out.nodes[std::size_t(n)].ops) {
      cost += amount(plan_.work(id)).flops.base();
      for (const Operand& o : plan_.operands_of(plan_[id])) {
        const TensorId owner = plan_.owner(o.tensor());
        if (!is_made_in_passes(plan_, owner)) continue;
        const auto [it, is_new] = maker.try_emplace(owner.value, n);
        if (is_new || it->second == n) continue;
        std::vector<TensorId>& values = out.nodes[std::size_t(it->second)].values;
        if (std::find(values.begin(), values.end(), owner) == values.end()) values.push_back(owner);
        edges.emplace(it->second, n);
      }
    }
    if (plan_[out.nodes[std::size_t(n)].ops.front()].phase == Phase::Forward) forward += cost;
    g.cost.push_back(cost);
  }
  for (double& c : g.cost) c *= forward > 0 ? 100 / forward : 1;
  g.edges.assign(edges.begin(), edges.end());
  for (const RematNode& node : out.nodes) {
    std::int64_t sum = 0;
    for (const TensorId v : node.values) sum += bytes(v);
    g.bytes.push_back(sum);
    g.extra.push_back(extra_of(node));
    g.once.push_back(!may_run_again(node));
  }
  return out;
}

}  // namespace

std::vector<RematPass> remat_passes(const Plan& plan, ClassId c, int most_blocks) {
  return LayerPasses{plan, c, most_blocks}.run();
}

}  // namespace orrery
