// SPDX-License-Identifier: Apache-2.0
// How long it takes to analyse, write and read a timeline of a million spans: 64 ranks, 15,625 ops each.
#include <benchmark/benchmark.h>

#include "sim/timeline/analysis.hpp"
#include "sim/timeline/chrome.hpp"
#include "sim/timeline/native.hpp"
#include "sim/timeline/perfetto.hpp"

using namespace orrery;

namespace {

constexpr std::int64_t kRanks = 64;
constexpr std::size_t kOps = 15'625;

Plan make_plan() {
  Plan plan;
  plan.mesh.axes = {{"dp", kRanks}};
  plan.groups = {{"dp", {0}, {}}};
  plan.classes = {{"all", {{0, kRanks}}, 0, kOps}};
  plan.works = {Gemm{.m = 512, .n = 512, .k = 512}, Collective{.group = GroupId{0}, .bytes = Bytes{1e6}}};
  for (std::size_t i = 0; i < kOps; ++i) {
    const bool is_collective = i % 8 == 7;
    Op op;
    op.name = plan.names.intern("layers." + std::to_string(i / 65) + ".op" + std::to_string(i % 65));
    op.work = WorkId{is_collective ? std::size_t{1} : 0};
    op.stream = is_collective ? Stream::Comm : Stream::Compute;
    op.first_dep = static_cast<std::uint32_t>(plan.deps.size());
    if (is_collective) plan.deps.push_back(OpId{i - 1});
    op.num_deps = is_collective ? 1 : 0;
    plan.ops.push_back(op);
  }
  return plan;
}

/// Each op takes 13 us, collectives beside the compute that follows.
Trace make_trace() {
  constexpr std::int64_t kDuration = 13'000'123;
  Trace trace;
  Timeline& t = trace.timeline;
  for (std::size_t i = 0; i < kOps; ++i) {
    const auto start = static_cast<std::int64_t>(i - i / 8) * kDuration;
    for (std::size_t r = 0; r < kRanks; ++r) t.spans.push_back({start, start + kDuration, OpId{i}, RankId{r}, 0, 0});
    t.makespan_ps = start + kDuration;
  }
  t.num_ranks = kRanks;
  t.instance_ends_ps = {t.makespan_ps};
  trace.plans = describe(make_plan());
  return trace;
}

void count(benchmark::State& state, const Trace& trace, std::size_t bytes) {
  state.counters["bytes/span"] = double(bytes) / double(trace.timeline.spans.size());
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(trace.timeline.spans.size()));
}

void analyse_million(benchmark::State& state) {
  const Trace trace = make_trace();
  for (auto _ : state) benchmark::DoNotOptimize(analyse(trace.timeline, trace.plans).makespan);
  count(state, trace, 0);
}

void write_native_million(benchmark::State& state) {
  const Trace trace = make_trace();
  std::size_t bytes = 0;
  for (auto _ : state) bytes = write_native(trace, "bench").size();
  count(state, trace, bytes);
}

void read_native_million(benchmark::State& state) {
  const Trace trace = make_trace();
  const std::string bytes = write_native(trace, "bench");
  for (auto _ : state) benchmark::DoNotOptimize(read_native(bytes, "bench").timeline.spans.size());
  count(state, trace, bytes.size());
}

void write_perfetto_million(benchmark::State& state) {
  const Trace trace = make_trace();
  std::size_t bytes = 0;
  for (auto _ : state) bytes = write_perfetto(trace).size();
  count(state, trace, bytes);
}

void write_chrome_million(benchmark::State& state) {
  const Trace trace = make_trace();
  std::size_t bytes = 0;
  for (auto _ : state) bytes = write_chrome(trace).size();
  count(state, trace, bytes);
}

BENCHMARK(analyse_million)->Unit(benchmark::kMillisecond);
BENCHMARK(write_native_million)->Unit(benchmark::kMillisecond);
BENCHMARK(read_native_million)->Unit(benchmark::kMillisecond);
BENCHMARK(write_perfetto_million)->Unit(benchmark::kMillisecond);
BENCHMARK(write_chrome_million)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
