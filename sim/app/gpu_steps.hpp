// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "calibrate/fit_runtime.hpp"
#include "sim/app/command.hpp"
#include "sim/app/scenario.hpp"
#include "sim/app/validation.hpp"

namespace orrery {

/// Whole steps for the calibration of a GPU: trainings and generations of GPT-2 and Llama of random sizes (hidden 512
/// to 5120, sequences of 128 to 16,384), lowered as for a user; at the end trainings whose weights the host updates
/// (ZeRO-Offload). No size is taken from the grid that a report validates by.
std::vector<Scenario> draw_gpu_steps(bool quick, std::uint64_t seed, const std::string& cluster,
                                     const Locations& locations);

/// Times of the works of plans, a line each ("plan, work, seconds" between tabs): what one run of a report has measured
/// and another one, or a test, reads.
class OpTimes {
 public:
  /// Those that the file has; empty without one. Throws UserError for lines that are none.
  explicit OpTimes(std::string path);
  bool knows(const std::string& plan) const { return plans_.contains(plan); }
  /// Of a plan's ops, by the text of their works; those that are not known keep what they have.
  void put(const std::string& plan, std::vector<ValidatedOp>& ops) const;
  /// Appends those of a plan that was measured. Throws DeviceError.
  void add(const std::string& plan, const std::vector<ValidatedOp>& ops);

 private:
  std::string path_;
  std::map<std::string, std::map<std::string, double>> plans_;
};

/// What is measured of steps: the cases, and how long a stream stands still behind an op.
struct GpuSteps {
  std::vector<RuntimeCase> cases;
  Seconds behind;
  std::size_t measured = 0, fresh = 0, left = 0;  // steps: that are known, of them measured now; without time
  std::vector<std::string> skipped;               // steps that did not run, and why
};
/// Executes each step that fits into so many bytes of a device a few times, unless `file` has it from a run before;
/// none begins when `is_over` says so.
GpuSteps measure_gpu_steps(const std::vector<Scenario>& steps, std::int64_t memory_bytes, const std::string& file,
                           const std::function<bool()>& is_over, AppContext& context);

/// The median of the times for which a device stands still between two ops of one stream; 0 where there are none.
Seconds behind_ops(const Timeline& timeline);

}  // namespace orrery
