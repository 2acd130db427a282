// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "runtime/cuda/activities.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/executor.hpp"

namespace orrery {

class Peers;

struct GpuOptions {
  bool fast_f32 = false;                                 // products of f32 may round their operands to tf32
  bool plain = false;                                    // ask the device for each tensor, instead of one arena
  bool graphs = false;                                   // plans that come again are replayed by CUDA graphs
  std::shared_ptr<ActivitySource> activities = nullptr;  // where spans come from; none: events around each op
  std::shared_ptr<ActivityAccount> account = nullptr;    // what the activities came to; none: nobody asks
  std::shared_ptr<Peers> peers = nullptr;                // processes that execute plans together; none: this one alone
  std::function<void(std::string_view)> warn = {};       // told of a kernel that is not used, and why; none: nobody
};

/// GPUs, reached through a driver. Plans in f32, bf16 or f16.
std::unique_ptr<Executor> make_gpu_executor(std::shared_ptr<GpuDriver> driver, const HostOptions& options = {},
                                            const GpuOptions& gpu = {});

/// Scratch that the kernels of the cuda device need.
const WorkspaceModel& gpu_workspaces();

}  // namespace orrery
