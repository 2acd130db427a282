// SPDX-License-Identifier: Apache-2.0
// What analysis may rely on: every id of a trace is in range. Readers check it, so that a hostile file cannot go
// further.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/error.hpp"
#include "sim/timeline/digest.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMaxPicoseconds = std::int64_t{1} << 62;
constexpr std::size_t kMaxProblems = 20;

/// Keeps the first problems: one broken table can have millions.
class Problems {
 public:
  void require(bool ok, std::string_view what, std::size_t index) {
    if (!ok && all_.size() < kMaxProblems) all_.push_back(fmt::format("{} {}", what, index));
  }
  std::vector<std::string> take() { return std::move(all_); }

 private:
  std::vector<std::string> all_;
};

/// Ranks of the mesh; 0 when its sizes are out of bounds.
std::int64_t checked_size(const Mesh& mesh) {
  std::int64_t size = 1;
  for (const Axis& axis : mesh.axes) {
    if (axis.size < 1 || axis.size > kMaxRanks || size * axis.size > kMaxRanks) return 0;
    size *= axis.size;
  }
  return size;
}

bool is_sound(const PlanDigest& plan, const RankClass& c) {
  if (c.ranges.size() != plan.mesh.axes.size()) return false;
  for (std::size_t a = 0; a < c.ranges.size(); ++a)
    if (c.ranges[a].first < 0 || c.ranges[a].first > c.ranges[a].last || c.ranges[a].last > plan.mesh.axes[a].size)
      return false;
  return std::uint64_t{c.first_op} + c.num_ops <= plan.ops.size();
}

bool is_sound(const PlanDigest& plan, const Group& g) {
  if (!g.only.empty() && g.only.size() != g.axes.size()) return false;
  std::array<bool, 256> seen{};
  for (const std::uint8_t axis : g.axes) {
    if (axis >= plan.mesh.axes.size() || seen[axis]) return false;
    seen[axis] = true;
  }
  return true;
}

bool is_sound(const PlanDigest& plan, const WorkDigest& w) {
  if (w.kind.index() >= plan.names.size() || w.text.index() >= plan.names.size()) return false;
  if (w.meeting == MeetingKind::Collective) return w.group.index() < plan.groups.size();
  if (w.meeting == MeetingKind::Send || w.meeting == MeetingKind::Receive) return w.peer.axis < plan.mesh.axes.size();
  return true;
}

bool is_sound(const PlanDigest& plan, std::size_t index) {
  const Op& op = plan.ops[index];
  if (op.name.index() >= plan.names.size() || op.work.index() >= plan.works.size()) return false;
  if (std::uint64_t{op.first_dep} + op.num_deps > plan.deps.size()) return false;
  for (const OpId dep : plan.deps_of(OpId{index}))
    if (dep.index() >= index) return false;
  return true;
}

bool is_sound_use(const PlanDigest& plan, std::size_t index) {
  const StorageUse& use = plan.storage[index];
  return use.op.index() < plan.ops.size() && use.owner.index() < plan.tensors.size() &&
         (index == 0 || plan.storage[index - 1].op <= use.op);
}

void check_plan(const PlanDigest& plan, Problems& problems) {
  problems.require(checked_size(plan.mesh) > 0, "sizes of mesh axes out of range in plan with ops:", plan.ops.size());
  if (checked_size(plan.mesh) == 0) return;
  for (std::size_t i = 0; i < plan.classes.size(); ++i)
    problems.require(is_sound(plan, plan.classes[i]), "ranges that do not fit the mesh in rank class", i);
  for (std::size_t i = 0; i < plan.groups.size(); ++i)
    problems.require(is_sound(plan, plan.groups[i]), "axes that the mesh does not have in group", i);
  for (std::size_t i = 0; i < plan.works.size(); ++i)
    problems.require(is_sound(plan, plan.works[i]), "names, groups or peers out of range in work", i);
  for (std::size_t i = 0; i < plan.ops.size(); ++i)
    problems.require(is_sound(plan, i), "names, works or dependencies out of range in op", i);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    problems.require(plan.tensors[i].name.index() < plan.names.size() && plan.tensors[i].bytes >= 0,
                     "name or size out of range in tensor", i);
  for (std::size_t i = 0; i < plan.storage.size(); ++i)
    problems.require(is_sound_use(plan, i), "op or tensor out of range, or out of order, in use of storage", i);
}

const PlanDigest* plan_of_instance(const Trace& trace, std::uint32_t instance) {
  if (instance >= std::max<std::size_t>(1, trace.timeline.instance_ends_ps.size())) return nullptr;
  const std::uint32_t plan = trace.timeline.plan_of(instance);
  return plan < trace.plans.size() ? &trace.plans[plan] : nullptr;
}

bool is_sound(const Trace& trace, const Span& s) {
  const PlanDigest* plan = plan_of_instance(trace, s.instance);
  return plan != nullptr && s.op.index() < plan->ops.size() && s.rank.value < plan->mesh.size() && s.start_ps >= 0 &&
         s.end_ps >= s.start_ps && s.end_ps <= trace.timeline.makespan_ps;
}

bool is_sound(const Trace& trace, const Peak& p) {
  const PlanDigest* plan = plan_of_instance(trace, p.instance);
  if (plan == nullptr || (!p.op.is_none() && p.op.index() >= plan->ops.size())) return false;
  for (const auto& [tensor, bytes] : p.owners)
    if (tensor.index() >= plan->tensors.size() || bytes < 0) return false;
  return p.rank.value < trace.timeline.num_ranks && p.bytes >= 0 && p.arena_bytes >= 0;
}

}  // namespace

std::vector<std::string> check_trace(const Trace& trace) {
  const Timeline& t = trace.timeline;
  Problems problems;
  for (const PlanDigest& plan : trace.plans) check_plan(plan, problems);
  problems.require(t.num_ranks >= 1 && t.num_ranks <= kMaxRanks,
                   "number of ranks out of range with spans:", t.spans.size());
  problems.require(t.makespan_ps >= 0 && t.makespan_ps <= kMaxPicoseconds,
                   "makespan out of range with spans:", t.spans.size());
  problems.require(t.instance_plans.empty() || t.instance_plans.size() == t.instance_ends_ps.size(),
                   "as many plans as ends needed of instances:", t.instance_ends_ps.size());
  std::vector<std::string> all = problems.take();
  if (!all.empty()) return all;
  for (std::size_t i = 0; i < t.instance_ends_ps.size(); ++i)
    problems.require(t.plan_of(static_cast<std::uint32_t>(i)) < trace.plans.size(), "unknown plan of instance", i);
  for (std::size_t i = 0; i < t.spans.size(); ++i)
    problems.require(is_sound(trace, t.spans[i]), "instance, op, rank or times out of range in span", i);
  for (std::size_t i = 0; i < t.memory.size(); ++i)
    problems.require(t.memory[i].rank.value < t.num_ranks, "rank out of range in memory sample", i);
  for (std::size_t i = 0; i < t.standing.size(); ++i)
    problems.require(t.standing[i].ranks >= 1 && t.standing[i].ranks <= t.num_ranks &&
                         (i == 0 || t.standing[i - 1].rank < t.standing[i].rank),
                     "number of ranks out of range, or out of order, in standing", i);
  for (std::size_t i = 0; i < t.peaks.size(); ++i)
    problems.require(is_sound(trace, t.peaks[i]), "ranks, ops or tensors out of range in peak", i);
  return problems.take();
}

}  // namespace orrery
