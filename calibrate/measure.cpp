// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "calibrate/disturbance.hpp"
#include "calibrate/this_machine.hpp"
#include "sim/base/shuffle.hpp"

namespace orrery {
namespace {

constexpr std::ptrdiff_t kOpsPerPlan = 40;
constexpr double kPicosecond = 1e-12;
constexpr double kVisit = 0.005;         // seconds that a visit measures for, if the plan is short
constexpr std::size_t kFewestQuiet = 3;  // measurements that count, disturbed or not
constexpr int kFewestRuns = 2, kMostMeasured = 8;
// Until the caches keep what they will keep of a working set that they may hold, or a part of which they may hold, as
// they do not replace what was used longest ago: passes, of which long ones need few.
constexpr double kMostHeld = 3;  // times the last cache
constexpr int kFewestSettling = 2, kMostSettling = 16;
constexpr double kLongPass = 0.1;  // seconds, in which it uses what caches hold many times: one settles them, one tells
constexpr double kSettling = 0.04;  // seconds

bool is_message(const Work& w) {
  return std::holds_alternative<Collective>(w) || std::holds_alternative<Send>(w) || std::holds_alternative<Recv>(w);
}

Bytes footprint(const Work& w) {
  const Amount a = amount(w);
  return a.read + a.written;
}

/// Ranks that meet: all in a collective of a plan that has one group only, or the two ends of a message.
std::int64_t ranks_of(const Plan& plan, const Work& w) {
  return std::holds_alternative<Collective>(w) ? plan.mesh.size() : is_message(w) ? 2 : 1;
}

/// A number that depends on nothing but its place.
double scattered(std::size_t i) { return static_cast<double>((i * 2654435761u >> 7) % 1024) / 1024 - 0.5; }

/// Writes every persistent tensor of numbers once. Memory that nobody has written is one shared page of zeros, which a
/// cache holds however large the tensor is.
void touch_all(Executor& executor, const Plan& plan, UsualValues& values) {
  const std::vector<ClassId> classes = plan.class_of_ranks();
  for (std::size_t r = 0; r < classes.size(); ++r) {
    std::vector<bool> seen(plan.tensors.size(), false);
    for (const Op& op : plan.ops_of(plan.classes[classes[r].index()]))
      for (const Operand& o : plan.operands_of(op)) {
        const TensorId owner = plan.owner(o.tensor());
        const Tensor& t = plan.tensors[owner.index()];
        if (seen[owner.index()] || !t.persistent || (t.dtype != DType::F32 && t.dtype != DType::F64)) continue;
        seen[owner.index()] = true;
        executor.write(plan, owner, RankId{r}, values.of(t, plan.shape(owner)));
      }
  }
}

using MeetingKey = BenchRun::MeetingKey;

/// Of each op of a class that meets others, by op.
std::map<std::uint32_t, MeetingKey> meetings_of(const Plan& plan, RankId rank, const RankClass& c) {
  std::map<std::uint32_t, MeetingKey> out;
  std::map<std::tuple<std::size_t, std::size_t, std::int64_t>, std::uint32_t> calls;
  const auto keep = [&](std::uint32_t op, std::size_t a, std::size_t b, std::int64_t tag) {
    out[op] = {a, b, tag, calls[{a, b, tag}]++};
  };
  constexpr std::int64_t kOfGroup = -1;  // in place of a tag
  for (std::uint32_t i = c.first_op; i < c.first_op + c.num_ops; ++i) {
    const Work& work = plan.work(OpId{i});
    if (const auto* g = std::get_if<Collective>(&work))
      keep(i, g->group.index(), members(plan.mesh, plan.groups[g->group.index()], rank).front().index(), kOfGroup);
    if (const auto* s = std::get_if<Send>(&work))
      keep(i, rank.index(), peer_of(plan.mesh, rank, s->peer).index(), s->tag);
    if (const auto* r = std::get_if<Recv>(&work))
      keep(i, peer_of(plan.mesh, rank, r->peer).index(), rank.index(), r->tag);
  }
  return out;
}

/// From the first rank that begins, which is the last to arrive, to the last that ends.
struct Gathered {
  std::int64_t start = INT64_MAX, end = 0;
  std::vector<OpId> ops;
};

}  // namespace

std::span<const double> UsualValues::of(const Tensor& t, const Shape& shape) {
  const bool is_parameter = t.role == TensorRole::Parameter;
  std::vector<double>& values = !is_parameter ? small_ : shape.rank > 1 ? weights_ : ones_;
  const auto n = static_cast<std::size_t>(shape.elements());
  values.reserve(n);
  for (std::size_t i = values.size(); i < n; ++i)
    values.push_back(!is_parameter ? 1e-3 * static_cast<double>(i % 17) : shape.rank > 1 ? 0.07 * scattered(i) : 1.0);
  return std::span{values}.first(n);
}

BenchRun::BenchRun(Bench bench) : BenchRun{std::move(bench), *std::make_unique<UsualValues>()} {}

BenchRun::BenchRun(Bench bench, UsualValues& values)
    : caches_{detected_caches()},
      bench_{std::make_unique<Bench>(std::move(bench))},
      executor_{make_host_executor({.record_spans = true, .record_memory = false, .watch_cores = true})},
      samples_(bench_->plan.ops.size()) {
  bench_->bindings.working_set = working_set(bench_->plan, bench_->bindings).base();
  bench_->bindings.ranks_of_node = bench_->plan.mesh.size();
  executor_->prepare(bench_->plan);
  touch_all(*executor_, bench_->plan, values);
  const std::vector<ClassId> classes = bench_->plan.class_of_ranks();
  for (std::size_t r = 0; r < classes.size(); ++r) {
    const RankClass& c = bench_->plan.classes[classes[r].index()];
    meets_.push_back(meetings_of(bench_->plan, RankId{r}, c));
    for (const Contents& contents : bench_->contents) fill(contents, RankId{r});
  }
  bench_->contents.clear();
}

void BenchRun::fill(const Contents& c, RankId rank) {
  if (bench_->plan.tensors[c.tensor.index()].dtype == DType::I32)
    executor_->write(bench_->plan, c.tensor, rank, std::vector<std::int32_t>(c.values.begin(), c.values.end()));
  else
    executor_->write(bench_->plan, c.tensor, rank, c.values);
}

void BenchRun::visit() {
  const bool stays = bench_->bindings.working_set <= kMostHeld * caches_.l3.base();
  const double usual = totals_.empty() ? time_once() : totals_.back().value;
  const auto times = [&](double seconds, int fewest, int most) {
    return usual >= kLongPass ? 1 : static_cast<int>(std::clamp(seconds / usual, double(fewest), double(most)));
  };
  const int runs = times(totals_.empty() ? 0 : kVisit, kFewestRuns, kMostMeasured);
  run(stays ? times(kSettling, kFewestSettling, kMostSettling) : 1, runs);
}

/// Seconds of an execution that counts for nothing else.
double BenchRun::time_once() {
  executor_->execute(bench_->plan, bench_->bindings);
  return double(executor_->take().makespan_ps) * kPicosecond;
}

void BenchRun::run(int warm_up, int runs) {
  for (int i = 0; i < warm_up + runs; ++i) executor_->execute(bench_->plan, bench_->bindings);
  const Timeline timeline = executor_->take();
  keep(timeline, executor_->disturbed(), static_cast<std::uint32_t>(warm_up));
}

/// Ops of ranks that take turns on a core have no time of their own.
bool BenchRun::has_time(const Work& w) const { return is_message(w) || bench_->plan.mesh.size() <= caches_.cores; }

void BenchRun::keep(const Timeline& timeline, std::span<const double> disturbed, std::uint32_t first_instance) {
  std::map<std::pair<std::uint32_t, MeetingKey>, Gathered> meetings;  // by instance
  std::map<std::uint32_t, std::pair<std::int64_t, std::int64_t>> totals;
  std::map<std::tuple<std::uint32_t, std::uint32_t, Stream>, std::int64_t> previous_end;
  const auto observed = [&](std::int64_t ps, std::uint32_t instance) {
    return Observed{static_cast<double>(ps) * kPicosecond, disturbed[instance], runs_};
  };
  Spans spans = timeline.spans;
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start_ps < b.start_ps; });
  for (const Span& s : spans) {
    if (s.instance < first_instance || s.part != 0) continue;
    const auto& meets = meets_[s.rank.index()];
    if (const auto key = meets.find(s.op.value); key != meets.end()) {
      Gathered& g = meetings[{s.instance, key->second}];
      g.start = std::min(g.start, s.start_ps), g.end = std::max(g.end, s.end_ps);
      g.ops.push_back(s.op);
    } else {
      samples_[s.op.index()].push_back(
          {static_cast<double>(s.end_ps - s.start_ps) * kPicosecond, executor_->disturbed(s), runs_});
    }
    const auto [total, fresh] = totals.try_emplace(s.instance, s.start_ps, s.end_ps);
    total->second.second = std::max(total->second.second, s.end_ps);
    const auto key = std::tuple{s.instance, s.rank.value, bench_->plan[s.op].stream};
    if (const auto before = previous_end.find(key); before != previous_end.end() && bench_->plan.mesh.size() == 1)
      gaps_.push_back(observed(s.start_ps - before->second, s.instance));
    previous_end[key] = s.end_ps;
  }
  for (auto& [key, g] : meetings) {
    std::sort(g.ops.begin(), g.ops.end());
    g.ops.erase(std::unique(g.ops.begin(), g.ops.end()), g.ops.end());
    for (const OpId op : g.ops) samples_[op.index()].push_back(observed(g.end - g.start, key.first));
  }
  for (const auto& [instance, t] : totals) totals_.push_back(observed(t.second - t.first, instance));
  ++runs_;
}

MeasuredPlan BenchRun::measured() const {
  const Plan& plan = bench_->plan;
  MeasuredPlan m{.name = plan.name,
                 .gap = median(quiet_values(gaps_, kFewestQuiet)),
                 .ranks = plan.mesh.size(),
                 .whole = plan.mesh.size() == 1,
                 .totals = totals_};
  std::vector<std::vector<std::vector<Observed>>> by_work(plan.works.size());
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    if (samples_[i].empty()) continue;
    const std::size_t work = plan.ops[i].work.index();
    if (plan.name_of(plan.ops[i]) == kProducer)
      m.whole = false;
    else
      by_work[work].push_back(has_time(plan.works[work]) ? samples_[i] : std::vector<Observed>{});
  }
  std::vector<Reuse> reuse = reuse_of_works(plan, bench_->bindings);
  for (std::size_t w = 0; w < by_work.size(); ++w) {
    if (by_work[w].empty()) continue;
    m.points.push_back({.work = plan.works[w],
                        .bindings = bench_->bindings,
                        .ranks = ranks_of(plan, plan.works[w]),
                        .samples = std::move(by_work[w]),
                        .weight = bench_->weight,
                        .reuse = std::make_shared<const Reuse>(std::move(reuse[w]))});
    m.points.back().bindings.reuse = m.points.back().reuse.get();
    m.points.back().ops = static_cast<std::int64_t>(m.points.back().samples.size());
  }
  summarise(m, {});
  return m;
}

double BenchRun::relative_error() const {
  std::vector<double> errors;
  for (const std::vector<Observed>& s : samples_)
    if (s.size() >= kFewestQuiet) errors.push_back(summarise(quiet_values(s, kFewestQuiet)).relative_error());
  return errors.empty() ? 1 : median(std::move(errors));
}

namespace {

/// Picks rows of a table. What it touches of it is less than what the working set of a plan counts.
bool picks_rows(const Work& w) {
  return std::visit(
      [](const auto& k) {
        return requires { k.table_rows; };
      },
      w);
}

Bench bench_of(std::vector<Work> works, std::size_t serial, Random& random) {
  shuffle(works, random);
  PlanBuilder builder{fmt::format("bench {}", serial)};
  builder.begin_class("all", {});
  OperandMaker maker{builder, random};
  for (const Work& w : works) maker.add(w);
  Bench bench{builder.take(&host_workspaces()), maker.contents(), {}, 1};
  bench.bindings[Symbol::Step] = 1;
  return bench;
}

}  // namespace

std::vector<Bench> make_benches(std::vector<Work> works, Random& random) {
  std::stable_sort(works.begin(), works.end(), [](const Work& a, const Work& b) {
    return std::pair{picks_rows(a), footprint(a)} < std::pair{picks_rows(b), footprint(b)};
  });
  const auto tables = std::find_if(works.begin(), works.end(), picks_rows);
  std::vector<Bench> benches;
  for (auto first = works.begin(); first != works.end();) {
    const auto end = first < tables ? tables : works.end();
    const auto last = first + std::min<std::ptrdiff_t>(kOpsPerPlan, end - first);
    benches.push_back(bench_of({first, last}, benches.size(), random));
    first = last;
  }
  return benches;
}

}  // namespace orrery
