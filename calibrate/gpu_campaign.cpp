// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>

#include "calibrate/gpu_benches.hpp"
#include "calibrate/gpu_noise.hpp"
#include "runtime/cuda/gpu_executor.hpp"
#include "runtime/peers.hpp"
#include "runtime/whole_arrays.hpp"
#include "sim/base/error.hpp"
#include "sim/base/shuffle.hpp"

namespace orrery {
namespace {

constexpr int kWarmUp = 3, kLeastRuns = 7, kMostRuns = 50;
constexpr double kEnough = 0.01, kSecondsOfBench = 1.0;
constexpr int kFailuresInTurn = 3;  // of a device that does nothing any more

/// Processes that measure together do as process 0 decides.
bool decided(Peers* peers, bool mine) { return peers ? peers->from(0, mine ? "yes" : "no") == "yes" : mine; }

/// Seconds of a measured op in an execution that took `whole`.
double time_of(const GpuBench& bench, const Timeline& timeline, double whole) {
  double sum = 0, ops = 0;
  const auto counts = [&](const Op& op) { return bench.plan.name_of(op) == "measured"; };
  if (bench.whole) return whole / double(std::count_if(bench.plan.ops.begin(), bench.plan.ops.end(), counts));
  for (const Span& s : timeline.spans) {
    if (!counts(bench.plan[s.op])) continue;
    sum += double(s.end_ps - s.start_ps) * 1e-12;
    ++ops;  // a collective has a span on each rank
  }
  return sum / ops;
}

/// Of each execution.
std::vector<double> times_of(const GpuBench& bench, Executor& executor, Peers* peers) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::vector<double> times;
  for (int run = 0; run < kWarmUp; ++run) executor.execute(bench.plan, {});
  (void)executor.take();
  while (times.size() < kMostRuns) {
    const double before = seconds();
    executor.execute(bench.plan, {});
    const double passed = seconds() - before;
    times.push_back(time_of(bench, executor.take(), passed));
    if (times.size() < kLeastRuns) continue;
    if (decided(peers, summarise(times).relative_error() < kEnough || seconds() > kSecondsOfBench)) break;
  }
  return times;
}

GpuResult measure_bench(const GpuBench& bench, const std::shared_ptr<GpuDriver>& driver, const GpuCampaign& campaign) {
  GpuOptions use = bench.use;
  use.warn = campaign.warn;
  if (bench.shared) use.peers = campaign.peers;
  if (bench.records) use.activities = driver->activities();
  GpuNoise noise{bench.plan};
  const auto executor =
      make_gpu_executor(driver, {.record_spans = !bench.whole || bench.spans, .record_memory = false}, use);
  executor->prepare(bench.plan);
  write_constants(*executor, bench.plan);
  noise.fill(*executor);
  return {bench.name,  bench.group, summarise(times_of(bench, *executor, use.peers.get())),
          bench.flops, bench.bytes, bench.work};
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

/// What the devices of all processes can: they draw the same benches.
GpuInfo least_of_all(const GpuDriver& driver, Peers* peers) {
  GpuInfo least = driver.info(0);
  if (!peers) return least;
  const auto agree = [&](auto& number) {
    for (const std::string& theirs : peers->gather(std::to_string(number)))
      number = static_cast<std::decay_t<decltype(number)>>(std::min<std::int64_t>(number, std::stoll(theirs)));
  };
  agree(least.memory_bytes);
  agree(least.capability);
  return least;
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
  throw UserError{fmt::format("no measurement of a GPU: {}", in_quotes(line)),
                  "lines have group, name, seconds, error, count, FLOP and bytes between tabs"};
}

GpuMeasurements measure_gpu(const std::shared_ptr<GpuDriver>& driver, const GpuCampaign& campaign) {
  const auto start = std::chrono::steady_clock::now();
  const auto is_over = [&] {
    const auto passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return campaign.budget && passed >= campaign.budget->base();
  };
  Random random{static_cast<std::uint64_t>(campaign.seed)};
  Peers* peers = campaign.peers.get();
  const bool reports = !peers || peers->process() == 0;
  const std::vector<GpuBench> benches =
      gpu_benches(least_of_all(*driver, peers), campaign.quick, random, peers ? peers->processes() : 1);
  std::vector<std::size_t> order(benches.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  shuffle(order, random);
  std::map<std::string, GpuResult> before;
  if (reports) before = known(campaign.resume);
  GpuMeasurements m;
  m.results.resize(benches.size());
  int failed = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const GpuBench& bench = benches[order[k]];
    if (!reports && !bench.shared) continue;
    Peers* together = bench.shared ? peers : nullptr;
    if (campaign.progress) campaign.progress(double(k) / double(order.size()), bench.name);
    GpuResult& r = m.results[order[k]];
    const auto it = before.find(bench.name);
    if (decided(together, it != before.end())) {
      if (reports) r = it->second;
      r.work = bench.work;
      continue;
    }
    if (decided(together, is_over())) {
      ++m.left;
      continue;
    }
    try {
      r = measure_bench(bench, driver, campaign);
    } catch (const DeviceError& e) {
      // What the others wait for must not be left out by one.
      if (together || ++failed == kFailuresInTurn) throw;
      m.skipped.push_back(fmt::format("{}: {}", bench.name, e.what()));
      continue;
    }
    failed = 0;
    ++m.fresh;
    if (campaign.resume.empty() || !reports) continue;
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
  GpuNoise noise{plan};
  const auto executor = make_gpu_executor(driver, {.record_spans = false, .record_memory = false});
  executor->prepare(plan);
  noise.fill(*executor);
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
