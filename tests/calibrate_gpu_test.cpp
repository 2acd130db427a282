// SPDX-License-Identifier: Apache-2.0
// Benches of GPUs, with one that is emulated: that they run, and what is counted of them.
#include <catch2/catch.hpp>
#include <map>

#include "calibrate/gpu_counters.hpp"
#include "calibrate/gpu_indexed_benches.hpp"
#include "runtime/whole_arrays.hpp"
#include "tests/emulated_gpu.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("the largest bench of each kind is counted", "[cuda]") {
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 256 << 20, .told_bytes = 1 << 20});
  const GpuCounts counts = count_gpu(gpu, {.quick = true});
  CHECK(counts.problem.empty());
  REQUIRE(!counts.ops.empty());
  for (const CountedOp& c : counts.ops) {
    INFO(c.name);
    CHECK(c.said > 0);
    CHECK(c.tensor_share == 0.5);
    if (c.name.starts_with("copy ")) CHECK(c.read + c.written == c.said);
  }
}

TEST_CASE("where counting is not permitted that is told, and the work goes on", "[cuda]") {
  const std::string at = GENERATE("counters", "counting");
  const auto gpu = std::make_shared<EmulatedGpu>(
      EmulationOptions{.memory_bytes = 256 << 20, .told_bytes = 1 << 20, .fails_at = at, .fails_after = 0});
  const GpuCounts counts = count_gpu(gpu, {.quick = true});
  CHECK(counts.problem == at + ": an error that the test asked for");
  CHECK(counts.ops.empty());
  CHECK(gpu->bytes_in_use(0) == 0);
}

TEST_CASE("what is measured of a device depends on what it has", "[cuda]") {
  // Of copies each way alone (within the device as one of the kernels that memory limits), and each beside each other.
  const auto kinds_of = [](int capability) {
    Random random{1};
    std::map<std::string, int> groups;
    for (const GpuBench& b :
         gpu_benches({.capability = capability, .memory_bytes = std::int64_t{80} << 30}, true, random)) {
      ++groups[b.group];
      if (b.group == "copies") ++groups[b.name.substr(b.name.find(" B ") + 3)];
      if (b.group == "collectives") ++groups[b.name.substr(0, b.name.find(' '))];
    }
    return groups;
  };
  std::map<std::string, int> on_hopper = kinds_of(90), on_ampere = kinds_of(80);
  CHECK(on_hopper["products in 8 bits"] == 6);  // three of bf16, three of f16
  CHECK(on_ampere["products in 8 bits"] == 0);
  for (const char* group : {"products", "products in tf32", "attention", "memory", "grouped", "copies", "collectives",
                            "launches", "observation", "allocations", "concurrency"})
    CHECK((on_hopper[group] > 0 && on_ampere[group] == on_hopper[group]));
  for (const char* way :
       {"to the device", "from the device", "to the device beside others from the device",
        "from the device beside others to the device", "to the device beside others within the device",
        "from the device beside others within the device", "within the device beside others to the device",
        "within the device beside others from the device"})
    CHECK(on_hopper[way] == 3);
  for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter"}) CHECK(on_hopper[kind] == 1);
}

TEST_CASE("benches whose operands are indices run", "[cuda]") {
  const auto gpu = std::make_shared<EmulatedGpu>();
  for (const DType t : {DType::F32, DType::BF16}) {
    Random random{1};
    std::map<std::string, int> kinds;
    for (const GpuBench& bench :
         gpu_indexed_benches(t, {.rows = {20}, .cols = 64, .vocabulary = 33, .keys = 32}, random)) {
      INFO(bench.name);
      const auto executor = make_gpu_executor(gpu);
      executor->prepare(bench.plan);
      write_constants(*executor, bench.plan);
      executor->execute(bench.plan, {});
      CHECK(bench.bytes > 0);
      ++kinds[bench.name.substr(0, bench.name.find(' '))];
    }
    for (const char* kind :
         {"gather", "scatter_add", "scatter_rows", "permute", "unpermute", "norm_backward", "cross_entropy_backward",
          "gated_backward", "sample", "tree_mask", "paged_attention", "grouped_gemm"})
      CHECK(kinds[kind] == 1);
  }
}
