// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery {
namespace {

constexpr std::size_t kOpsPerPlan = 40;
constexpr double kPicosecond = 1e-12;

bool is_message(const Work& w) {
  return std::holds_alternative<Collective>(w) || std::holds_alternative<Send>(w) || std::holds_alternative<Recv>(w);
}

Bytes footprint(const Work& w) {
  const Amount a = amount(w);
  return a.read + a.written;
}

/// Ranks of an op's class: as many as meet in a collective of a plan that has one group only.
std::int64_t ranks_of(const Plan& plan, const Work& w) { return is_message(w) ? plan.mesh.size() : 1; }

/// Writes every persistent tensor of numbers once. Memory that nobody has written is one shared page of zeros, which a cache
/// holds however large the tensor is.
void touch_all(Executor& executor, const Plan& plan) {
  const std::vector<ClassId> classes = plan.class_of_ranks();
  for (std::size_t r = 0; r < classes.size(); ++r) {
    std::vector<bool> seen(plan.tensors.size(), false);
    for (const Op& op : plan.ops_of(plan.classes[classes[r].index()]))
      for (const Operand& o : plan.operands_of(op)) {
        const TensorId owner = plan.owner(o.tensor());
        const Tensor& t = plan.tensors[owner.index()];
        if (seen[owner.index()] || !t.persistent || (t.dtype != DType::F32 && t.dtype != DType::F64)) continue;
        seen[owner.index()] = true;
        std::vector<double> values(static_cast<std::size_t>(plan.shape(owner).elements()));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1e-3 * static_cast<double>(i % 17);
        executor.write(plan, owner, RankId{r}, values);
      }
  }
}

struct OpInstance {
  std::int64_t last_start = 0, last_end = 0;
};

}  // namespace

BenchRun::BenchRun(Bench bench)
    : bench_{std::make_unique<Bench>(std::move(bench))},
      executor_{make_host_executor({.record_spans = true, .record_memory = false})},
      samples_(bench_->plan.ops.size()) {
  bench_->bindings.working_set = working_set(bench_->plan).base();
  executor_->prepare(bench_->plan);
  touch_all(*executor_, bench_->plan);
  for (const Contents& c : bench_->contents) {
    const DType type = bench_->plan.tensors[c.tensor.index()].dtype;
    if (type == DType::I32) {
      std::vector<std::int32_t> values(c.values.begin(), c.values.end());
      executor_->write(bench_->plan, c.tensor, RankId{0}, values);
    } else {
      executor_->write(bench_->plan, c.tensor, RankId{0}, c.values);
    }
  }
}

void BenchRun::run(int warm_up, int runs) {
  for (int i = 0; i < warm_up + runs; ++i) executor_->execute(bench_->plan, bench_->bindings);
  keep(executor_->take(), static_cast<std::uint32_t>(warm_up));
}

void BenchRun::keep(const Timeline& timeline, std::uint32_t first_instance) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, OpInstance> ops;  // (instance, op) over all ranks
  std::map<std::uint32_t, std::pair<std::int64_t, std::int64_t>> totals;
  std::map<std::tuple<std::uint32_t, std::uint32_t, Stream>, std::int64_t> previous_end;
  std::vector<Span> spans = timeline.spans;
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start_ps < b.start_ps; });
  for (const Span& s : spans) {
    if (s.instance < first_instance || s.part != 0) continue;
    OpInstance& op = ops[{s.instance, s.op.value}];
    op.last_start = std::max(op.last_start, s.start_ps);
    op.last_end = std::max(op.last_end, s.end_ps);
    const auto [total, fresh] = totals.try_emplace(s.instance, s.start_ps, s.end_ps);
    total->second.second = std::max(total->second.second, s.end_ps);
    const auto key = std::tuple{s.instance, s.rank.value, bench_->plan[s.op].stream};
    if (const auto before = previous_end.find(key); before != previous_end.end() && bench_->plan.mesh.size() == 1)
      gaps_.push_back(static_cast<double>(s.start_ps - before->second) * kPicosecond);
    previous_end[key] = s.end_ps;
  }
  for (const auto& [key, op] : ops)
    samples_[key.second].push_back(static_cast<double>(op.last_end - op.last_start) * kPicosecond);
  for (const auto& [instance, t] : totals) totals_.push_back(static_cast<double>(t.second - t.first) * kPicosecond);
}

std::vector<Point> BenchRun::points() const {
  std::vector<Point> points;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    if (samples_[i].empty()) continue;
    const Work& work = bench_->plan.work(OpId{i});
    points.push_back({.work = work,
                      .bindings = bench_->bindings,
                      .ranks = ranks_of(bench_->plan, work),
                      .seconds = summarise(samples_[i]),
                      .weight = bench_->weight});
  }
  return points;
}

double BenchRun::relative_error() const {
  std::vector<double> errors;
  for (const std::vector<double>& s : samples_)
    if (s.size() >= 3) errors.push_back(summarise(s).relative_error());
  return errors.empty() ? 1 : median(std::move(errors));
}

std::vector<Bench> make_benches(std::vector<Work> works, Random& random) {
  std::stable_sort(works.begin(), works.end(),
                   [](const Work& a, const Work& b) { return footprint(a) < footprint(b); });
  std::vector<Bench> benches;
  for (std::size_t first = 0; first < works.size(); first += kOpsPerPlan) {
    const std::size_t last = std::min(works.size(), first + kOpsPerPlan);
    std::vector<Work> part(works.begin() + static_cast<std::ptrdiff_t>(first),
                           works.begin() + static_cast<std::ptrdiff_t>(last));
    for (std::size_t i = part.size(); i > 1; --i) std::swap(part[i - 1], part[random.below(i)]);
    PlanBuilder builder{fmt::format("bench {}", benches.size())};
    builder.begin_class("all", {});
    OperandMaker maker{builder, random};
    for (const Work& w : part) maker.add(w);
    benches.push_back({builder.take(&host_workspaces()), maker.contents(), {}, 1});
    benches.back().bindings[Symbol::Step] = 1;
  }
  return benches;
}

}  // namespace orrery
