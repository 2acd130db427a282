// SPDX-License-Identifier: Apache-2.0
// Collectives: executed by threads through shared memory, and stepped by the engine.
#include <benchmark/benchmark.h>

#include "runtime/executor.hpp"

namespace {

using namespace orrery;

/// An all-reduce in place over `ranks`, of so many KiB.
Plan all_reduce_plan(std::int64_t ranks, std::int64_t kibibytes) {
  PlanBuilder b{"all_reduce", Mesh{{{"r", ranks}}}};
  b.begin_class("all", {{0, ranks}});
  const GroupId group = b.group({.name = "all", .axes = {0}, .only = {{}}});
  const std::int64_t elements = kibibytes * 256;
  const TensorId x = b.tensor("x", Shape{elements}, {.dtype = DType::F32, .persistent = true});
  const Bytes bytes = size_of(DType::F32, elements);
  b.add("sum", Collective{.kind = CollectiveKind::AllReduce, .group = group, .bytes = bytes}, {updates(x)}, Stream::Comm);
  return b.take(nullptr);
}

/// Of `range(0)` ranks and `range(1)` KiB by algorithm `range(2)`: buffers per second of all ranks together.
void executed_all_reduce(benchmark::State& state) {
  const Plan plan = all_reduce_plan(state.range(0), state.range(1));
  const auto executor = make_host_executor({.record_spans = false,
                                            .record_memory = false,
                                            .collectives = static_cast<CollectiveAlgorithm>(state.range(2))});
  executor->prepare(plan);
  executor->execute(plan, {});
  for (auto _ : state) executor->execute(plan, {});
  state.SetLabel(std::string{name_of(static_cast<CollectiveAlgorithm>(state.range(2)))});
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1) * 1024);
}
BENCHMARK(executed_all_reduce)
    ->ArgsProduct({{2, 16}, {64, 4096}, {1, 2, 3, 4, 6}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
