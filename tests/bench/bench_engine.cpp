// SPDX-License-Identifier: Apache-2.0
// How fast the engine is, and what an op costs in memory. With --million also 20 M ops (--benchmark_filter=million runs
// only those).
#include <benchmark/benchmark.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "sim/engine/engine.hpp"
#include "sim/engine/op_table.hpp"

namespace {

using namespace orrery;

/// m picoseconds; k > 0 asks for that many percent of the SMs.
class BenchCost final : public CostModel {
 public:
  OpCost cost(const Work& work, const Bindings&, RankId) const override {
    const auto& g = std::get<Gemm>(work);
    OpCost c;
    c.duration = Seconds{static_cast<double>(g.m) * 1e-12};
    if (g.k > 0) c.demand(Resource::Sm, static_cast<double>(g.k) * 0.01);
    return c;
  }
  OpCost collective(const Collective&, std::span<const RankId>) const override { return {.duration = Seconds{1e-6}}; }
  OpCost transfer(Bytes, RankId, RankId) const override { return {.duration = Seconds{1e-6}}; }
  LaunchCost launch(const Work&, RankId) const override { return {}; }
  std::string extrapolation(const Work&, const Bindings&, RankId) const override { return {}; }
};

class BenchResources final : public ResourceMap {
 public:
  explicit BenchResources(std::uint32_t ranks) : ranks_{ranks} {}
  std::uint32_t instance(Resource, RankId rank) const override { return rank.value; }
  std::uint32_t count(Resource) const override { return ranks_; }
  double capacity(Resource, std::uint32_t) const override { return 1; }

 private:
  std::uint32_t ranks_;
};

/// Adds `ops` ops in turn on two streams, each after the one before it.
void add_class(Plan& plan, std::vector<CoordRange> ranges, std::uint32_t ops, std::uint32_t first_work) {
  RankClass c{.name = "class",
              .ranges = std::move(ranges),
              .first_op = static_cast<std::uint32_t>(plan.ops.size()),
              .num_ops = ops};
  const NameId name = plan.names.intern("op");
  for (std::uint32_t i = 0; i < ops; ++i) {
    Op op;
    op.name = name;
    op.work = WorkId{(first_work + i * 7) % plan.works.size()};
    op.stream = i % 2 == 0 ? Stream::Compute : Stream::Comm;
    op.first_dep = static_cast<std::uint32_t>(plan.deps.size());
    op.num_deps = i > 0 ? 1 : 0;
    if (i > 0) plan.deps.emplace_back(plan.ops.size() - 1);
    plan.ops.push_back(op);
  }
  plan.classes.push_back(std::move(c));
}

/// All ranks of one class (they march in step) or each rank a class of its own order of works (they do not).
Plan chains(std::int64_t ranks, std::uint32_t ops_per_rank, bool one_class, std::int64_t demand = 0) {
  Plan plan;
  plan.name = "chains";
  plan.mesh.axes = {{"dp", ranks}};
  for (std::int64_t i = 0; i < 4099; ++i) plan.works.push_back(Gemm{.m = 900001 + i * 1103 % 4099 * 37, .k = demand});
  const std::int64_t classes = one_class ? 1 : ranks;
  plan.ops.reserve(static_cast<std::size_t>(classes) * ops_per_rank);
  plan.deps.reserve(plan.ops.capacity());
  for (std::int64_t c = 0; c < classes; ++c)
    add_class(plan, {one_class ? CoordRange{0, ranks} : CoordRange{c, c + 1}}, ops_per_rank,
              static_cast<std::uint32_t>(c * 13));
  return plan;
}

double resident_bytes() {
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) * 1024;
  return 0;
}

void report(benchmark::State& state, const Plan& plan, std::uint64_t ops, double rss_before) {
  const BenchCost cost;
  const BenchResources resources{static_cast<std::uint32_t>(plan.mesh.size())};
  const Fleet fleet{plan, {}, cost, resources, Expansion::Expanded};
  KnownReuse reuse;
  const Surroundings around{plan, {}, cost, reuse};
  CostTable costs{plan, around, cost, fleet};
  const OpTable table{plan, fleet, costs};
  const double plan_bytes = static_cast<double>(plan.ops.size() * sizeof(Op) + plan.deps.size() * sizeof(OpId));
  state.counters["bytes_per_op"] = (plan_bytes + static_cast<double>(table.bytes())) / static_cast<double>(ops);
  state.counters["rss_per_op"] = (resident_bytes() - rss_before) / static_cast<double>(ops);
  state.counters["ops"] = static_cast<double>(ops);
  state.SetItemsProcessed(static_cast<std::int64_t>(ops) * state.iterations());
}

void run(benchmark::State& state, const Plan& plan, Record record, double rss_before) {
  const BenchCost cost;
  const BenchResources resources{static_cast<std::uint32_t>(plan.mesh.size())};
  std::uint64_t ops = 0;
  for (auto _ : state) {
    Engine engine{cost, resources, {.expansion = Expansion::Expanded, .record = record, .track_memory = false}};
    ops = engine.execute(plan, {}).ops;
    if (record != Record::Totals) benchmark::DoNotOptimize(engine.take());
  }
  report(state, plan, ops, rss_before);
}

void expanded(benchmark::State& state, Record record) {
  const double before = resident_bytes();
  const std::int64_t ranks = state.range(0);
  run(state, chains(ranks, static_cast<std::uint32_t>((1 << 20) / ranks), true), record, before);
}

void unfolded(benchmark::State& state, Record record) {
  const double before = resident_bytes();
  const std::int64_t ranks = state.range(0);
  run(state, chains(ranks, static_cast<std::uint32_t>((1 << 20) / ranks), false), record, before);
}

void contention(benchmark::State& state, Record record) {
  // Two independent streams of a rank that each ask for 70 % of its SMs: each start and each end re-times the other.
  Plan plan = chains(state.range(0), static_cast<std::uint32_t>((1 << 20) / state.range(0)), true, 70);
  for (Op& op : plan.ops) op.num_deps = 0;
  run(state, plan, record, resident_bytes());
}

/// A decode step: 1,000 ops of one rank with 300 persistent tensors and as many short-lived ones, again and again.
void repeated(benchmark::State& state) {
  Plan plan = chains(1, 1000, true);
  plan.layouts.push_back(Layout::contiguous(Shape{4096}));
  for (std::uint32_t i = 0; i < 600; ++i) {
    Tensor t;
    t.name = plan.names.intern("layers." + std::to_string(i) + ".some.tensor");
    t.layout = LayoutId{0};
    t.persistent = i < 300;
    plan.tensors.push_back(t);
  }
  for (std::uint32_t i = 0; i < 1000; ++i) {
    Op& op = plan.ops[i];
    op.first_operand = static_cast<std::uint32_t>(plan.operands.size());
    op.num_operands = 3;
    Operand last{TensorId{std::size_t{300 + (i + 299) % 300}}, Access::Read},
        next{TensorId{std::size_t{300 + i % 300}}, Access::Write};
    last.set_frees(i > 0);
    next.set_allocates(true);
    plan.operands.insert(plan.operands.end(), {Operand{TensorId{std::size_t{i % 300}}, Access::Read}, last, next});
  }
  const BenchCost cost;
  const BenchResources resources{1};
  Engine engine{cost, resources, {.record = Record::Totals}};
  for (auto _ : state) benchmark::DoNotOptimize(engine.execute(plan, {}));
  state.SetItemsProcessed(1000 * state.iterations());
}

void million(benchmark::State& state, Record record) {
  const double before = resident_bytes();
  run(state, chains(1024, static_cast<std::uint32_t>(state.range(0) * 1000000 / 1024), false), record, before);
}

BENCHMARK_CAPTURE(expanded, totals, Record::Totals)
    ->RangeMultiplier(16)
    ->Range(1, 4096)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(expanded, spans, Record::Spans)
    ->RangeMultiplier(16)
    ->Range(1, 4096)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(unfolded, totals, Record::Totals)
    ->RangeMultiplier(16)
    ->Range(1, 4096)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(unfolded, spans, Record::Spans)
    ->RangeMultiplier(16)
    ->Range(1, 4096)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(contention, totals, Record::Totals)->Arg(1)->Arg(64)->Arg(4096)->Unit(benchmark::kMillisecond);
BENCHMARK(repeated)->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  // Gigabytes and a minute each: only when asked for.
  for (int i = 1; i < argc; ++i)
    if (std::string{argv[i]} == "--million") {
      benchmark::RegisterBenchmark("million/totals", million, Record::Totals)
          ->Arg(20)
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
      benchmark::RegisterBenchmark("million/spans", million, Record::Spans)
          ->Arg(20)
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
