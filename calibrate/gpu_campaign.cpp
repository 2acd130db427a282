// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>

#include "calibrate/gpu_benches.hpp"
#include "runtime/cuda/gpu_executor.hpp"
#include "runtime/whole_arrays.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr int kWarmUp = 3, kLeastRuns = 7, kMostRuns = 50;
constexpr double kEnough = 0.01, kSecondsOfBench = 1.0;

/// Seconds of a measured op in each execution.
std::vector<double> times_of(const GpuBench& bench, Executor& executor) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::vector<double> times;
  for (int run = 0; run < kWarmUp; ++run) executor.execute(bench.plan, {});
  (void)executor.take();
  while (times.size() < kMostRuns) {
    const double before = seconds();
    executor.execute(bench.plan, {});
    const double passed = seconds() - before;
    double sum = 0, ops = 0;
    for (const Op& op : bench.plan.ops) ops += bench.plan.name_of(op) == "measured" ? 1 : 0;
    if (bench.whole) {
      times.push_back(passed / ops);
      (void)executor.take();
    } else {
      for (const Span& s : executor.take().spans)
        if (bench.plan.name_of(bench.plan[s.op]) == "measured") sum += double(s.end_ps - s.start_ps) * 1e-12;
      times.push_back(sum / ops);
    }
    if (times.size() >= kLeastRuns && (summarise(times).relative_error() < kEnough || seconds() > kSecondsOfBench))
      break;
  }
  return times;
}

GpuResult measure_bench(const GpuBench& bench, const std::shared_ptr<GpuDriver>& driver) {
  GpuOptions use = bench.use;
  if (bench.records) use.activities = driver->activities();
  const auto executor =
      make_gpu_executor(driver, {.record_spans = !bench.whole || bench.spans, .record_memory = false}, use);
  executor->prepare(bench.plan);
  write_constants(*executor, bench.plan);
  return {bench.name, bench.group, summarise(times_of(bench, *executor)), bench.flops, bench.bytes, bench.work};
}

std::map<std::string, GpuResult> known(const std::string& path) {
  std::map<std::string, GpuResult> results;
  std::ifstream in{path};
  for (std::string line; std::getline(in, line);) {
    GpuResult r = result_from_line(line);
    results[r.name] = std::move(r);
  }
  return results;
}

}  // namespace

std::string to_line(const GpuResult& r) {
  return fmt::format("{}\t{}\t{:.9g}\t{:.9g}\t{}\t{:.17g}\t{:.17g}", r.group, r.name, r.seconds.median,
                     r.seconds.median_error, r.seconds.count, r.flops, r.bytes);
}

GpuResult result_from_line(const std::string& line) {
  GpuResult r;
  std::istringstream in{line};
  std::string numbers;
  if (std::getline(in, r.group, '\t') && std::getline(in, r.name, '\t') && std::getline(in, numbers)) {
    std::istringstream all{numbers};
    if (all >> r.seconds.median >> r.seconds.median_error >> r.seconds.count >> r.flops >> r.bytes) return r;
  }
  throw UserError{fmt::format("no measurement of a GPU: {}", quoted(line)),
                  "lines have group, name, seconds, error, count, FLOP and bytes between tabs"};
}

GpuMeasurements measure_gpu(const std::shared_ptr<GpuDriver>& driver, const GpuCampaign& campaign) {
  const auto start = std::chrono::steady_clock::now();
  const auto is_over = [&] {
    const auto passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return campaign.budget && passed >= campaign.budget->base();
  };
  Random random{static_cast<std::uint64_t>(campaign.seed)};
  const Bytes memory{double(driver->info(0).memory_bytes)};
  const std::vector<GpuBench> benches = gpu_benches(memory, campaign.quick, random);
  std::vector<std::size_t> order(benches.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  const std::map<std::string, GpuResult> before = known(campaign.resume);
  GpuMeasurements m;
  m.results.resize(benches.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    const GpuBench& bench = benches[order[k]];
    if (campaign.progress) campaign.progress(double(k) / double(order.size()), bench.name);
    GpuResult& r = m.results[order[k]];
    if (const auto it = before.find(bench.name); it != before.end()) {
      r = it->second;
      r.work = bench.work;
      continue;
    }
    if (is_over()) {
      ++m.left;
      continue;
    }
    try {
      r = measure_bench(bench, driver);
    } catch (const DeviceError& e) {
      if (!bench.records) throw;
      m.skipped.push_back(fmt::format("{}: {}", bench.name, e.what()));
      continue;
    }
    ++m.fresh;
    if (campaign.resume.empty()) continue;
    std::ofstream out{campaign.resume, std::ios::app};
    if (!(out << to_line(r) << '\n').flush()) throw DeviceError{fmt::format("cannot write {}", campaign.resume)};
  }
  std::erase_if(m.results, [](const GpuResult& r) { return r.name.empty(); });
  return m;
}

std::vector<ClockSample> measure_clocks(const std::shared_ptr<GpuDriver>& driver, Seconds duration,
                                        const std::function<void(double done)>& progress) {
  constexpr std::int64_t kRepeats = 4;
  // A square of a side that a device of today takes a millisecond for, less where there is less memory.
  const std::int64_t side = driver->info(0).memory_bytes < std::int64_t{1} << 32 ? 64 : 8192;
  const Gemm g{.m = side, .n = side, .k = side, .dtype = DType::BF16};
  PlanBuilder b{"clocks"};
  const auto square = [&](const char* name) {
    return b.tensor(name, Shape{side, side}, {.dtype = DType::BF16, .persistent = true});
  };
  const TensorId x = square("a"), y = square("b"), z = square("c");
  for (std::int64_t i = 0; i < kRepeats; ++i) b.add("measured", g, {reads(x), reads(y), writes(z)});
  const Plan plan = b.take(&gpu_workspaces());
  const auto executor = make_gpu_executor(driver, {.record_spans = false, .record_memory = false});
  executor->prepare(plan);
  const auto start = std::chrono::steady_clock::now();
  const auto now = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::vector<ClockSample> samples;
  double began = 0, runs = 0;
  while (began < duration.base()) {
    executor->execute(plan, {});
    ++runs;
    const double at = now();
    if (at - began < std::min(0.5, duration.base() / 4)) continue;
    samples.push_back({at, runs * kRepeats * amount(g).flops.base() / (at - began), driver->state(0)});
    if (progress) progress(std::min(1.0, at / duration.base()));
    began = at;
    runs = 0;
  }
  return samples;
}

}  // namespace orrery
