// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calibrate/gpu_benches.hpp"

namespace orrery {

/// What the counters of a device say of one op: bytes of its memory, beside those that the op is said to move, and how
/// long its tensor cores were at work.
struct CountedOp {
  std::string name;
  double read = 0, written = 0;  // B
  double said = 0;               // B, read and written
  double tensor_share = 0;       // 0 … 1
};
struct GpuCounts {
  std::vector<CountedOp> ops;
  std::string problem = {};  // why nothing is counted; empty when all is
};

/// Counts the largest bench of each kind of op with a law. Where counting is not permitted, or there is nothing that
/// counts, says so and goes on.
GpuCounts count_gpu(const std::shared_ptr<GpuDriver>& driver, const GpuCampaign& campaign);

}  // namespace orrery
