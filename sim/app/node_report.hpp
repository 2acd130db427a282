// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/gpu_benches.hpp"
#include "calibrate/gpu_counters.hpp"
#include "sim/app/command.hpp"
#include "sim/app/gpu_steps.hpp"
#include "sim/app/scenario.hpp"
#include "sim/app/table_calibration.hpp"

namespace orrery {

/// Measures the GPUs of this computer, into a file that a measurement which was stopped goes on from; not longer than
/// the budget, if there is one.
GpuMeasurements calibrate_gpu(const std::shared_ptr<GpuDriver>& driver, GpuCampaign campaign, AppContext& context);

/// Clock, power and rate of a device that multiplies for so long, which it also writes as a table with tabs.
std::vector<ClockSample> watch_clocks(const std::shared_ptr<GpuDriver>& driver, Seconds duration,
                                      const std::string& path, AppContext& context);
/// What they were at first and at the end; empty for no samples.
std::string text_of(const std::vector<ClockSample>& samples);

/// A line per group of results: how many, and the best rate.
std::string text_of(const std::vector<GpuResult>& results);

/// One scenario, predicted and executed; `problem` says why not.
struct NodePlan {
  std::string name;
  double predicted = 0, low = 0, high = 0, measured = 0;
  std::int64_t peak_predicted = 0, peak_measured = 0;
  double op_error = 0;                   // median over its different ops; plans of several ranks have none
  double first_loss = 0, last_loss = 0;  // of training
  std::string problem = {};

  bool shares = false;  // its ranks have shared GPUs, which the prediction gives one each

  bool ran() const { return problem.empty(); }
  /// Whether its times can be compared.
  bool is_predicted() const { return ran() && !shares; }
  double error() const { return predicted / measured - 1; }
};

/// One line of a file, and back. Throws UserError for a line that is none.
std::string to_line(const NodePlan& plan);
NodePlan plan_from_line(const std::string& line);

/// Predicts and executes one scenario of the grid; its timeline goes to `folder`, the times of its ops to `times`.
NodePlan run_on_node(const Scenario& scenario, const std::string& folder, OpTimes& times, AppContext& context);

/// The device as its file has it, with laws of the runtime on it that were fitted to what was measured.
TableCalibration fit_node(const std::vector<GpuResult>& results, const GpuSteps& steps, const std::string& device,
                          const GpuInfo& info, AppContext& context);

/// What a report is made of and what it says.
struct NodeReportOptions {
  std::string folder = "node-report";
  std::string grid = "gpu";  // as of `orrery validate`
  bool quick = false;
  std::int64_t seed = 1;
  Seconds clocks{60};   // how long clock and power are watched
  Seconds budget{450};  // what is not done by then is left to another run of the report
};
struct NodeReport {
  GpuMeasurements measured;
  GpuSteps steps;
  TableCalibration parameters;
  std::vector<ClockSample> clocks;
  GpuCounts counts;
  std::vector<NodePlan> plans;
  std::size_t plans_left = 0;        // for another run
  std::vector<std::string> refused;  // kernels that are not used, and why

  double mean_abs_error() const;  // over the plans that ran as they were predicted
  double worst_abs_error() const;
  double op_error() const;  // median over the plans that have any
  std::size_t ran() const;
  std::size_t predicted() const;
  std::size_t exact_peaks() const;
};
/// Measures, fits, predicts with what was fitted and measures the grid; all of it lies in the folder then, and a report
/// that was stopped, or had no time left, goes on from what is there.
NodeReport report_node(const std::shared_ptr<GpuDriver>& driver, const NodeReportOptions& options, AppContext& context);

/// The device that has GPUs of this name, and the first cluster of such. `is_known` is false where there is none: an
/// H100 then stands in, whose laws are replaced by those that are fitted.
struct NodeCluster {
  std::string cluster, device;
  bool is_known = true;
};
NodeCluster cluster_of(const std::string& gpu, const Locations& locations);

}  // namespace orrery
