// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/foreign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "sim/base/error.hpp"
#include "sim/base/whole_number.hpp"
#include "sim/timeline/columns.hpp"
#include "sim/timeline/lanes.hpp"

namespace orrery {
namespace {

constexpr std::string_view kPrefix = "orrery.";
constexpr std::uint32_t kMaxPlans = 1 << 16;
constexpr std::size_t kMaxInstances = 1 << 24;
/// A file whose op ids are spread out more than this over its slices would take memory out of proportion.
constexpr std::size_t kMaxIdsPerSlice = 256;

}  // namespace

std::vector<std::pair<std::string, std::string>> header_of(const Trace& trace) {
  const Timeline& t = trace.timeline;
  std::vector<std::pair<std::string, std::string>> out;
  const auto add = [&](std::string_view key, std::string value) {
    out.emplace_back(fmt::format("{}{}", kPrefix, key), std::move(value));
  };
  add("source", t.source == TimelineSource::Measured ? "measured" : "predicted");
  add("plan_name", t.plan_name);
  add("machine", t.machine);
  add("num_ranks", std::to_string(t.num_ranks));
  add("makespan_ps", std::to_string(t.makespan_ps));
  for (const PlanDigest& plan : trace.plans) add("plan", plan.name);
  for (std::uint32_t i = 0; i < t.instance_ends_ps.size(); ++i) {
    add("instance_plan", std::to_string(t.plan_of(i)));
    add("instance_end_ps", std::to_string(t.instance_ends_ps[i]));
  }
  out.insert(out.end(), trace.metadata.begin(), trace.metadata.end());
  return out;
}

void TraceBuilder::fail(std::string_view what) const {
  throw UserError{fmt::format("cannot read '{}' as a trace: {}", file_, what)};
}

std::int64_t TraceBuilder::number(std::string_view text) const {
  const auto value = whole_number<std::int64_t>(text);
  if (!value) fail(fmt::format("{} is no whole number", in_quotes(text)));
  return *value;
}

void TraceBuilder::add_plan(std::uint32_t index) {
  if (index >= kMaxPlans) fail(fmt::format("it has a plan {}", index));
  while (trace_.plans.size() <= index) trace_.plans.emplace_back();
  building_.resize(trace_.plans.size());
}

void TraceBuilder::add_header(std::string_view key, std::string_view value) {
  Timeline& t = trace_.timeline;
  if (key.substr(0, kPrefix.size()) != kPrefix) {
    trace_.metadata.emplace_back(key, value);
    return;
  }
  key.remove_prefix(kPrefix.size());
  if (t.instance_ends_ps.size() > kMaxInstances) fail("it has too many instances");
  if (key == "source")
    t.source = value == "measured" ? TimelineSource::Measured : TimelineSource::Predicted;
  else if (key == "plan_name")
    t.plan_name = value;
  else if (key == "machine")
    t.machine = value;
  else if (key == "num_ranks")
    t.num_ranks = number(value);
  else if (key == "makespan_ps")
    t.makespan_ps = number(value);
  else if (key == "instance_plan")
    t.instance_plans.push_back(static_cast<std::uint32_t>(number(value)));
  else if (key == "instance_end_ps")
    t.instance_ends_ps.push_back(number(value));
  else if (key == "plan") {
    add_plan(named_plans_);
    trace_.plans[named_plans_++].name = value;
  } else {
    trace_.metadata.emplace_back(fmt::format("{}{}", kPrefix, key), value);
  }
}

Op TraceBuilder::make_op(const Slice& slice, PlanDigest& plan, Building& building) const {
  Op op;
  op.name = plan.names.intern(slice.name);
  const NameId text = plan.names.intern(slice.work);
  const auto [work, is_new] = building.works.try_emplace(text, static_cast<std::uint32_t>(plan.works.size()));
  if (is_new) {
    WorkDigest& w = plan.works.emplace_back();
    w.text = text;
    w.kind = plan.names.intern(slice.kind);
    if (!find_by_name(slice.op_class, w.op_class)) w.op_class = OpClass::Other;
  }
  op.work = WorkId{std::size_t{work->second}};
  op.stream = slice.stream;
  if (!find_by_name(slice.phase, op.phase)) op.phase = Phase::Forward;
  if (!from_number(slice.layer, op.layer) || !from_number(slice.microbatch, op.microbatch))
    fail("a layer or microbatch is out of range");
  return op;
}

void TraceBuilder::add(const Slice& slice) {
  if (slice.span.op.is_none() || slice.span.rank.is_none()) fail("a slice has no op or rank");
  add_plan(slice.plan);
  Building& building = building_[slice.plan];
  const std::uint32_t op = slice.span.op.value;
  if (!building.ops.contains(op)) building.ops[op] = make_op(slice, trace_.plans[slice.plan], building);
  ranks_ = std::max(ranks_, std::int64_t{slice.span.rank.value} + 1);
  trace_.timeline.makespan_ps = std::max(trace_.timeline.makespan_ps, slice.span.end_ps);
  trace_.timeline.spans.push_back(slice.span);
}

void TraceBuilder::add_dependency(std::uint32_t plan, OpId op, OpId on) {
  add_plan(plan);
  building_[plan].deps.emplace_back(op, on);
}

/// Ops by id; those that no slice is of are called "(not recorded)".
void TraceBuilder::finish(PlanDigest& plan, Building& building, std::int64_t ranks) const {
  std::size_t count = 0;
  for (const auto& [id, op] : building.ops) count = std::max<std::size_t>(count, std::size_t{id} + 1);
  if (count > 1000 + kMaxIdsPerSlice * trace_.timeline.spans.size()) fail("its op ids are out of range");
  plan.mesh.axes = {{"rank", ranks}};
  plan.classes = {{"all", {{0, ranks}}, 0, static_cast<std::uint32_t>(count)}};
  Op unknown;
  if (building.ops.size() < count) {
    unknown = make_op({{}, 0, "(not recorded)", "unknown", "other", "unknown", "forward", Stream::Compute, -1, 0}, plan,
                      building);
  }
  std::vector<Op> ops(count, unknown);
  std::vector<OpId> deps;
  for (const auto& [id, op] : building.ops) ops[id] = op;
  std::sort(building.deps.begin(), building.deps.end());
  building.deps.erase(std::unique(building.deps.begin(), building.deps.end()), building.deps.end());
  for (const auto& [op, on] : building.deps) {
    if (op.index() >= count || on >= op) fail("an op depends on a later one or one that is not there");
    Op& o = ops[op.index()];
    if (o.num_deps == 0) o.first_dep = static_cast<std::uint32_t>(deps.size());
    if (++o.num_deps == 0) fail("an op has too many dependencies");
    deps.push_back(on);
  }
  plan.ops = std::move(ops);
  plan.deps = std::move(deps);
}

Trace TraceBuilder::take() {
  Timeline& t = trace_.timeline;
  for (const MemorySample& m : t.memory) ranks_ = std::max(ranks_, std::int64_t{m.rank.value} + 1);
  t.num_ranks = std::max(t.num_ranks, ranks_);
  std::uint32_t instances = 1;
  for (const Span& s : t.spans) instances = std::max(instances, s.instance + 1);
  if (t.instance_ends_ps.empty() && instances > 1) fail("it does not say which plan its instances executed");
  for (std::size_t p = 0; p < trace_.plans.size(); ++p) finish(trace_.plans[p], building_[p], t.num_ranks);
  std::sort(t.spans.begin(), t.spans.end(), [](const Span& a, const Span& b) {
    return std::tuple{a.end_ps, a.rank, a.start_ps, a.instance, a.op, a.part} <
           std::tuple{b.end_ps, b.rank, b.start_ps, b.instance, b.op, b.part};
  });
  const std::vector<std::string> problems = check_trace(trace_);
  if (!problems.empty()) fail(problems.front());
  return std::move(trace_);
}

}  // namespace orrery
