// SPDX-License-Identifier: Apache-2.0
// Collectives: executed by threads through shared memory, and stepped by the engine.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/parameters.hpp"
#include "runtime/executor.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/flow_network.hpp"
#include "sim/machine/resources.hpp"

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
  b.add("sum", Collective{.kind = CollectiveKind::AllReduce, .group = group, .bytes = bytes}, {updates(x)},
        Stream::Comm);
  return b.take(nullptr);
}

/// Of `range(0)` ranks and `range(1)` KiB by algorithm `range(2)`: buffers per second of all ranks together.
void executed_all_reduce(benchmark::State& state) {
  const Plan plan = all_reduce_plan(state.range(0), state.range(1));
  const auto executor =
      make_host_executor({.record_spans = false,
                          .record_memory = false,
                          .collectives = CollectiveChoice::all(static_cast<CollectiveAlgorithm>(state.range(2)))});
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

/// The most memory that this process has used, in MB.
double peak_megabytes() {
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1000;
  return 0;
}

Cluster nodes_of_eight(std::int64_t ranks) {
  Cluster c;
  c.nodes = ranks / 8, c.devices_per_node = 8, c.device = "h100_sxm", c.name = "bench";
  c.device_link = Link{"inside", BytesPerSecond{450e9}, Seconds{1.5e-6}};
  c.host_link = Link{"host", BytesPerSecond{63e9}, Seconds{1.5e-6}};
  c.nic = Nic{"card", NicPlacement::PerDevice, BytesPerSecond{50e9}, Seconds{4e-6}};
  return c;
}

/// Messages of an all-reduce of n ranks: 2(n − 1) of each in a ring, 2·log₂ n with halves of halves; 0 for others.
double messages(double n, CollectiveAlgorithm algorithm) {
  if (algorithm == CollectiveAlgorithm::Ring) return 2 * (n - 1) * n;
  return algorithm == CollectiveAlgorithm::Halving ? 2 * std::log2(n) * n : 0;
}

/// What messages contend for when flows: nothing, a card per node, links up of leaves that hashes of ranks choose from.
enum class Contention { None, Cards, Leaves };

/// How its messages are shared: by the engine itself, or as flows.
struct Sharing {
  std::optional<SolvedFlows> flows;
  Contention contention = Contention::None;
};

/// An all-reduce of 1 GiB over range(0) ranks in nodes of eight, step by step by algorithm range(1).
void stepped_all_reduce(benchmark::State& state, Expansion expansion, Sharing sharing = {}) {
  Cluster cluster = nodes_of_eight(state.range(0));
  if (sharing.contention == Contention::Cards) cluster.nic->per = NicPlacement::PerNode;
  if (sharing.contention == Contention::Leaves) {
    cluster.network.shape = NetworkShape::FatTree;
    cluster.network.nodes_per_leaf = 4, cluster.network.oversubscription = 2;
  }
  const auto algorithm = static_cast<CollectiveAlgorithm>(state.range(1));
  cluster.algorithms = CollectiveChoice::all(algorithm);
  const ClusterCostModel cost{cluster, find_device(cluster.device, {parameters_folder()})};
  const ClusterResources resources{cluster};
  const Plan plan = all_reduce_plan(state.range(0), 1024 * 1024);
  EngineOptions options{
      .expansion = expansion, .record = Record::Totals, .track_memory = false, .collectives = Collectives::Detailed};
  if (sharing.flows && !has_flow_network()) return state.SkipWithError("built without SimGrid");
  if (sharing.flows) options.network = make_flow_network(Topology{cost.reached()}, *sharing.flows);
  std::int64_t end_ps = 0;
  for (auto _ : state) end_ps = simulate(plan, {}, cost, resources, options).makespan_ps;
  state.SetLabel(std::string{name_of(algorithm)});
  state.counters["predicted_s"] = static_cast<double>(end_ps) * 1e-12;
  state.counters["peak_MB"] = peak_megabytes();
  if (const double n = messages(double(state.range(0)), algorithm); n > 0)
    state.counters["s_per_message"] =
        benchmark::Counter(n, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(stepped_all_reduce, folded, Expansion::Folded)
    ->ArgsProduct({{512, 4096}, {1, 3, 4, 5}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(stepped_all_reduce, expanded, Expansion::Expanded)
    ->Args({512, 1})
    ->Args({512, 5})
    ->Args({4096, 4})
    ->Args({4096, 5})
    ->Args({4096, 1})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(stepped_all_reduce, flows, Expansion::Expanded, Sharing{SolvedFlows::Contended})
    ->Args({8, 4})
    ->Args({64, 1})
    ->Args({64, 4})
    ->Args({512, 1})
    ->Args({512, 4})
    ->Args({512, 5})
    ->Args({4096, 4})
    ->Args({16384, 4})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(stepped_all_reduce, flows_each_solved, Expansion::Expanded, Sharing{SolvedFlows::All})
    ->ArgsProduct({{8, 64, 512, 4096}, {4}})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(stepped_all_reduce, flows_over_one_card, Expansion::Expanded,
                  Sharing{SolvedFlows::Contended, Contention::Cards})
    ->ArgsProduct({{64, 512, 4096}, {4}})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(stepped_all_reduce, flows_over_one_card_each_solved, Expansion::Expanded,
                  Sharing{SolvedFlows::All, Contention::Cards})
    ->Args({4096, 4})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(stepped_all_reduce, flows_up_leaves, Expansion::Expanded,
                  Sharing{SolvedFlows::Contended, Contention::Leaves})
    ->ArgsProduct({{64, 512, 4096}, {4}})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(stepped_all_reduce, flows_up_leaves_each_solved, Expansion::Expanded,
                  Sharing{SolvedFlows::All, Contention::Leaves})
    ->Args({4096, 4})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace

BENCHMARK_MAIN();
