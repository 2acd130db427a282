// SPDX-License-Identifier: Apache-2.0
// What is measured of a GPU: tiny plans whose ops are large enough for one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/statistics.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/gpu_executor.hpp"
#include "runtime/executor.hpp"
#include "sim/base/random.hpp"

namespace orrery {

/// A plan, and which of its ops count: those called "measured".
struct GpuBench {
  std::string name, group;  // "gemm bf16 m=512 n=4096 k=1024", "products"
  Plan plan;
  double flops = 0, bytes = 0;    // of one measured op
  bool whole = false;             // the time of an execution over its ops counts: what enqueueing costs
  std::optional<Work> work = {};  // of a measured op whose law can be fitted
  GpuOptions use = {};            // how the device is used
  bool spans = false;             // are taken, though it is the whole that counts
  bool records = false;           // they come from records of CUPTI
  bool shared = false;            // by all processes that measure together
};

/// Products (of f32 also in tf32, of 16 bits also in 8 where the device can), attention and memory-bound kernels over
/// sizes that are spread evenly on a logarithmic scale (every fourth of them at random, to check fits off the grid);
/// copies to the device, from it and within it, alone, beside one another and beside a product; two products at once;
/// collectives of ranks; one small kernel, and chains of them on one stream and on two: enqueued, replayed, and with
/// and without spans by events or records; chains of tensors that are taken and given back, from an arena and from the
/// device. Those that fit into the device's memory. Where several processes measure together, collectives are of one
/// rank of each.
std::vector<GpuBench> gpu_benches(const GpuInfo& gpu, bool quick, Random& random, int processes = 1);

struct GpuResult {
  std::string name, group;
  RobustSummary seconds;  // of a measured op
  double flops = 0, bytes = 0;
  std::optional<Work> work = {};  // as of the bench; not in the file
};

struct GpuCampaign {
  bool quick = false;
  std::int64_t seed = 1;
  std::string resume;                  // file with a line per result; what stands there is not measured again
  std::optional<Seconds> budget = {};  // no bench begins after it
  std::function<void(double done, const std::string& name)> progress = {};  // may throw to stop
  std::shared_ptr<Peers> peers = nullptr;           // processes that measure together; null: none but this one
  std::function<void(std::string_view)> warn = {};  // told of kernels that are not used; none: nobody
};

struct GpuMeasurements {
  std::vector<GpuResult> results;         // in the order of the benches
  std::size_t fresh = 0;                  // of them measured now, not read from the file
  std::size_t left = 0;                   // benches that there was no time for
  std::vector<std::string> skipped = {};  // benches that this computer cannot run, and why
};

/// Measures all, in random order, and appends each result to the file as soon as it is there. Of processes that measure
/// together, process 0 measures what one rank does and has all results; the others take part in collectives. Throws
/// DeviceError when a plan does not run, UserError when the file holds something else.
GpuMeasurements measure_gpu(const std::shared_ptr<GpuDriver>& driver, const GpuCampaign& campaign);

/// What a device does while it multiplies without a pause.
struct ClockSample {
  double seconds = 0;  // since the start
  double rate = 0;     // FLOP/s
  GpuState state;
};
/// A product after another for so long, one sample per half a second.
std::vector<ClockSample> measure_clocks(const std::shared_ptr<GpuDriver>& driver, Seconds duration,
                                        const std::function<void(double done)>& progress);

/// One line of such a file, and back.
std::string to_line(const GpuResult& result);
GpuResult result_from_line(const std::string& line);

}  // namespace orrery
