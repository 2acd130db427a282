// SPDX-License-Identifier: Apache-2.0
#include "calibrate/gpu_counters.hpp"

#include <map>

#include "runtime/cuda/counters.hpp"
#include "runtime/whole_arrays.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// By the word of the kind and its type: the bench that moves most.
std::map<std::string, const GpuBench*> largest_of_each(const std::vector<GpuBench>& benches) {
  std::map<std::string, const GpuBench*> largest;
  for (const GpuBench& b : benches) {
    if (!b.work || b.plan.ops.size() != 1) continue;  // what else the plan does would be counted as well
    const GpuBench*& best = largest[std::string{kind_name(*b.work)}];
    if (!best || best->bytes < b.bytes) best = &b;
  }
  return largest;
}

}  // namespace

GpuCounts count_gpu(const std::shared_ptr<GpuDriver>& driver, const GpuCampaign& campaign) {
  Random random{static_cast<std::uint64_t>(campaign.seed)};
  const std::vector<GpuBench> benches = gpu_benches(driver->info(0), campaign.quick, random);
  GpuCounts counts;
  try {
    const auto source = driver->counters(0, {kBytesRead, kBytesWritten, kTensorShare});
    for (const auto& [kind, bench] : largest_of_each(benches)) {
      if (campaign.progress) campaign.progress(0, "counters of " + kind);
      const auto executor = make_gpu_executor(driver, {.record_spans = false, .record_memory = false}, bench->use);
      executor->prepare(bench->plan);
      write_constants(*executor, bench->plan);
      executor->execute(bench->plan, {});  // what is done once only
      const std::vector<double> v = source->measure([&, &bench = bench] { executor->execute(bench->plan, {}); });
      counts.ops.push_back({bench->name, v[0], v[1], bench->bytes, v[2] / 100});
    }
  } catch (const DeviceError& e) {
    counts.problem = e.what();
  }
  return counts;
}

}  // namespace orrery
