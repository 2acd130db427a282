// SPDX-License-Identifier: Apache-2.0
// What the emulated GPU keeps of a capture.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tests/emulated_gpu.hpp"

namespace orrery::testing {

struct EmulatedGpu::CapturedTask {
  GpuStream stream;
  Task task;
  std::int64_t slot = -1;
};

struct EmulatedGpu::Capture {
  GpuStream origin = nullptr;
  std::set<GpuStream> joined, unjoined;    // that take part; whose last work nobody waits for yet
  std::map<GpuEvent, GpuStream> recorded;  // events of the capture, and where
  std::vector<CapturedTask> tasks;

  void add(GpuStream stream, Task task, std::int64_t slot);
};

struct EmulatedGpu::Graph final : GpuGraph {
  explicit Graph(EmulatedGpu& owner) : gpu{owner} {}
  void launch(GpuStream stream) override { gpu.replay(*this, stream); }
  EmulatedGpu& gpu;
  std::vector<CapturedTask> tasks;
};

}  // namespace orrery::testing
