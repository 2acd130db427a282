// SPDX-License-Identifier: Apache-2.0
#include "sim/app/node_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "calibrate/published/devices.hpp"
#include "calibrate/this_machine.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/validation.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/error.hpp"
#include "sim/base/table.hpp"
#include "sim/timeline/trace_file.hpp"

namespace orrery {

/// Kernels that are not used are told by whoever comes upon them first.
static Warn warn_of(AppContext& context) {
  return [&console = context.console](std::string_view text) { console.warn_once(text); };
}

GpuMeasurements calibrate_gpu(const std::shared_ptr<GpuDriver>& driver, GpuCampaign campaign, AppContext& context) {
  campaign.progress = [&](double done, const std::string& name) {
    context.interrupt.check();
    context.console.progress(name, done);
  };
  campaign.warn = warn_of(context);
  GpuMeasurements measured = measure_gpu(driver, campaign);
  context.console.end_progress();
  return measured;
}

std::string text_of(const std::vector<GpuResult>& results) {
  struct Group {
    int count = 0;
    double flops = 0, bytes = 0, shortest = 0;
  };
  std::map<std::string, Group> groups;
  for (const GpuResult& r : results) {
    if (r.seconds.median <= 0) continue;
    Group& g = groups[r.group];
    g.flops = std::max(g.flops, r.flops / r.seconds.median);
    g.bytes = std::max(g.bytes, r.bytes / r.seconds.median);
    g.shortest = g.count++ == 0 ? r.seconds.median : std::min(g.shortest, r.seconds.median);
  }
  Table table{{{"group"},
               {"points", Align::Right},
               {"best rate", Align::Right},
               {"best traffic", Align::Right},
               {"shortest", Align::Right}}};
  for (const auto& [name, g] : groups)
    table.add({name, std::to_string(g.count), to_text(FlopsPerSecond{g.flops}), to_text(BytesPerSecond{g.bytes}),
               to_text(Seconds{g.shortest})});
  return table.text("  ");
}

static void save_clocks(const std::vector<ClockSample>& samples, const std::string& path) {
  std::string text = "seconds\tflop_per_second\tclock_hz\twatts\tcelsius\n";
  for (const ClockSample& s : samples)
    text += fmt::format("{:.3f}\t{:.6g}\t{:.6g}\t{:.4g}\t{:.3g}\n", s.seconds, s.rate, s.state.clock_hz, s.state.watts,
                        s.state.celsius);
  write_file_atomically(path, text);
}

/// What `save_clocks` wrote; nothing when there is no such file, or none of such lines.
static std::vector<ClockSample> clocks_before(const std::string& path) {
  std::vector<ClockSample> samples;
  std::ifstream in{path};
  std::string line;
  std::getline(in, line);  // the names of the columns
  while (std::getline(in, line)) {
    ClockSample s;
    std::istringstream numbers{line};
    if (!(numbers >> s.seconds >> s.rate >> s.state.clock_hz >> s.state.watts >> s.state.celsius)) return {};
    samples.push_back(s);
  }
  return samples;
}

std::vector<ClockSample> watch_clocks(const std::shared_ptr<GpuDriver>& driver, Seconds duration,
                                      const std::string& path, AppContext& context) {
  std::vector<ClockSample> samples = measure_clocks(driver, duration, [&](double done) {
    context.interrupt.check();
    context.console.progress("clock and power", done);
  });
  context.console.end_progress();
  save_clocks(samples, path);
  return samples;
}

std::string text_of(const std::vector<ClockSample>& samples) {
  if (samples.empty()) return {};
  const ClockSample &first = samples.front(), &last = samples.back();
  return fmt::format("clock and power  {:.0f} MHz and {:.0f} W at first, {:.0f} MHz and {:.0f} W after {:.0f} s\n",
                     first.state.clock_hz * 1e-6, first.state.watts, last.state.clock_hz * 1e-6, last.state.watts,
                     last.seconds);
}

std::string to_line(const NodePlan& p) {
  std::string problem = p.problem.empty() ? "-" : p.problem;
  std::replace_if(
      problem.begin(), problem.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return fmt::format("{}\t{:.9g}\t{:.9g}\t{:.9g}\t{:.9g}\t{}\t{}\t{:.6g}\t{:.9g}\t{:.9g}\t{:d}\t{}", p.name,
                     p.predicted, p.low, p.high, p.measured, p.peak_predicted, p.peak_measured, p.op_error,
                     p.first_loss, p.last_loss, p.shares, problem);
}

NodePlan plan_from_line(const std::string& line) {
  NodePlan p;
  std::istringstream in{line};
  std::getline(in, p.name, '\t');
  if (!(in >> p.predicted >> p.low >> p.high >> p.measured >> p.peak_predicted >> p.peak_measured >> p.op_error >>
        p.first_loss >> p.last_loss >> p.shares) ||
      !std::getline(in >> std::ws, p.problem))
    throw UserError{fmt::format("a line of an earlier report cannot be read: {}", in_quotes(line)),
                    "remove its plans.tsv, and all plans are executed again"};
  if (p.problem == "-") p.problem.clear();
  return p;
}

namespace {

double median_op_error(const ValidatedPlan& p) {
  std::vector<double> errors;
  for (const ValidatedOp& op : p.ops)
    if (op.measured > 0 && op.predicted > 0) errors.push_back(std::abs(op.predicted / op.measured - 1));
  return median(std::move(errors));
}

void predict_and_measure(NodePlan& p, const Scenario& scenario, const std::string& folder, OpTimes& times,
                         AppContext& context) {
  constexpr std::int64_t kRounds = 3;  // nobody else uses the device
  const Validation v = validate_scenarios({scenario}, {.repeats = kRounds}, context);
  const ValidatedPlan& plan = v.plans.front();
  p.predicted = plan.predicted, p.low = plan.low, p.high = plan.high, p.measured = plan.measured;
  p.peak_predicted = plan.peak_predicted, p.peak_measured = plan.peak_measured;
  p.op_error = median_op_error(plan);
  p.shares = plan.report.ranks > context.wiring.gpus()->num_devices();
  if (!plan.loss.empty()) p.first_loss = plan.loss.front(), p.last_loss = plan.loss.back();
  times.add(p.name, plan.ops);
  write_trace({plan.measurement, plan.plans, {{"scenario", p.name}}}, fmt::format("{}/{}.orrery", folder, p.name));
}

}  // namespace

NodePlan run_on_node(const Scenario& scenario, const std::string& folder, OpTimes& times, AppContext& context) {
  NodePlan p{.name = scenario.name};
  std::replace(p.name.begin(), p.name.end(), ' ', '.');
  try {
    predict_and_measure(p, scenario, folder, times, context);
  } catch (const UserError& e) {
    p.problem = e.diagnostics().front().message;
  } catch (const MissingError&) {
    throw;
  } catch (const DeviceError& e) {
    p.problem = e.what();
  }
  return p;
}

TableCalibration fit_node(const std::vector<GpuResult>& results, const GpuSteps& steps, const std::string& device,
                          const GpuInfo& info, AppContext& context) {
  constexpr std::uint32_t kAlone = 1u << 20;  // groups from there on have one case each
  context.console.progress("fit", 0.5);
  TableCalibration c{gpu_parameters(device, context.wiring.locations().parameter_folders()), {}, 0};
  GpuRuntime runtime{.provenance = {.status = FitStatus::Fitted,
                                    .machine = info.name,
                                    .date = today(),
                                    .tool = tool_version(),
                                    .source = fmt::format("measured by orrery node-report, driver {}", info.driver)},
                     .enqueue = c.parameters.enqueue,
                     .start_latency = c.parameters.start_latency,
                     .behind = steps.behind};
  std::vector<RuntimeCase> cases = steps.cases;
  for (const GpuResult& r : results) {
    const auto group = static_cast<std::uint32_t>(kAlone + cases.size());
    if (r.work && r.seconds.median > 0) cases.push_back({*r.work, {}, r.seconds.median, group});
    if (r.group == "observation" && r.name.ends_with("events")) runtime.enqueue = Seconds{r.seconds.median};
  }
  c.rows = cases.size();
  fit_runtime(runtime, c.parameters, cases);
  for (const auto& [name, law] : runtime.products) c.fitted.push_back(name);
  for (const auto& [name, law] : runtime.kernels) c.fitted.push_back(name);
  c.of_runtime = true;
  if (!c.fitted.empty()) c.parameters.runtime = std::move(runtime);
  context.console.end_progress();
  return c;
}

double NodeReport::mean_abs_error() const {
  double sum = 0;
  for (const NodePlan& p : plans) sum += p.is_predicted() ? std::abs(p.error()) : 0;
  return predicted() > 0 ? sum / double(predicted()) : 0;
}
double NodeReport::worst_abs_error() const {
  double worst = 0;
  for (const NodePlan& p : plans) worst = std::max(worst, p.is_predicted() ? std::abs(p.error()) : 0);
  return worst;
}
double NodeReport::op_error() const {
  std::vector<double> errors;
  for (const NodePlan& p : plans)
    if (p.ran() && p.op_error > 0) errors.push_back(p.op_error);
  return median(std::move(errors));
}
std::size_t NodeReport::ran() const {
  return static_cast<std::size_t>(std::count_if(plans.begin(), plans.end(), [](const NodePlan& p) { return p.ran(); }));
}
std::size_t NodeReport::predicted() const {
  return static_cast<std::size_t>(
      std::count_if(plans.begin(), plans.end(), [](const NodePlan& p) { return p.is_predicted(); }));
}
std::size_t NodeReport::exact_peaks() const {
  return static_cast<std::size_t>(std::count_if(
      plans.begin(), plans.end(), [](const NodePlan& p) { return p.ran() && p.peak_predicted == p.peak_measured; }));
}

namespace {

void save_counts(const GpuCounts& counts, const std::string& path) {
  if (counts.ops.empty()) return;
  std::string text = "op\tbytes_read\tbytes_written\tbytes_said\ttensor_share\n";
  for (const CountedOp& c : counts.ops)
    text += fmt::format("{}\t{:.6g}\t{:.6g}\t{:.6g}\t{:.4g}\n", c.name, c.read, c.written, c.said, c.tensor_share);
  write_file_atomically(path, text);
}

/// What is left of a time that began when this was made.
class Budget {
 public:
  explicit Budget(Seconds all) : all_{all} {}
  Seconds left() const {
    const auto passed = std::chrono::steady_clock::now() - start_;
    return all_ - Seconds{std::chrono::duration<double>(passed).count()};
  }

 private:
  Seconds all_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The parts of the time that measurements of single ops, and then of steps, may take; the grid of plans gets what is
/// left.
constexpr double kShareOfBenches = 0.3, kShareOfSteps = 0.22;

std::map<std::string, NodePlan> plans_before(const std::string& path) {
  std::map<std::string, NodePlan> plans;
  std::ifstream in{path};
  for (std::string line; std::getline(in, line);) {
    NodePlan p = plan_from_line(line);
    plans[p.name] = std::move(p);
  }
  return plans;
}

/// The plans of the grid, in an order in which any first part has plans of all kinds.
void run_grid(NodeReport& r, const std::vector<Scenario>& grid, const NodeReportOptions& o, const Budget& budget,
              AppContext& context) {
  const std::string path = o.folder + "/plans.tsv";
  // Plans of before were predicted with other parameters when more has been measured since.
  if (r.measured.fresh > 0 || r.steps.fresh > 0)
    for (const char* file : {"/plans.tsv", "/ops.tsv"}) std::filesystem::remove(o.folder + file);
  const std::map<std::string, NodePlan> before = plans_before(path);
  OpTimes times{o.folder + "/ops.tsv"};
  constexpr std::size_t kStride = 5;
  for (std::size_t first = 0; first < (o.quick ? 1 : kStride); ++first)
    for (std::size_t i = first; i < grid.size(); i += kStride) {
      context.interrupt.check();
      std::string name = grid[i].name;
      std::replace(name.begin(), name.end(), ' ', '.');
      if (const auto it = before.find(name); it != before.end()) {
        r.plans.push_back(it->second);
      } else if (budget.left() <= Seconds{0}) {
        ++r.plans_left;
      } else {
        r.plans.push_back(run_on_node(grid[i], o.folder, times, context));
        std::ofstream out{path, std::ios::app};
        if (!(out << to_line(r.plans.back()) << '\n').flush()) throw DeviceError{fmt::format("cannot write {}", path)};
      }
    }
}

}  // namespace

NodeReport report_node(const std::shared_ptr<GpuDriver>& driver, const NodeReportOptions& o, AppContext& context) {
  const Budget budget{o.budget};
  const GpuInfo info = driver->info(0);
  const NodeCluster node = cluster_of(info.name, context.wiring.locations());
  NodeReport r;
  r.measured = calibrate_gpu(driver,
                             {.quick = o.quick,
                              .seed = o.seed,
                              .resume = o.folder + "/measurements.tsv",
                              .budget = kShareOfBenches * o.budget},
                             context);
  const std::string clocks = o.folder + "/clocks.tsv";
  r.clocks = clocks_before(clocks);
  if (r.clocks.empty()) r.clocks = watch_clocks(driver, o.clocks, clocks, context);
  if (budget.left() > Seconds{0}) {
    r.counts = count_gpu(driver, {.quick = o.quick, .seed = o.seed, .progress = [&](double, const std::string& name) {
                                    context.interrupt.check();
                                    context.console.progress(name, 0);
                                  }});
    save_counts(r.counts, o.folder + "/counters.tsv");
  }
  // Predictions from here on look for parameters in the folder of the report first, and run on the GPUs that are open.
  Environment environment = context.environment;
  environment["ORRERY_HOME"] = o.folder;
  const Wiring wiring{environment, [driver] { return driver; }, warn_of(context)};
  AppContext fitted{context.console, context.interrupt, wiring, environment, context.command_line, context.json};
  const Seconds end_of_steps = budget.left() - kShareOfSteps * o.budget;
  r.steps = measure_gpu_steps(
      draw_gpu_steps(o.quick, static_cast<std::uint64_t>(o.seed), node.cluster, wiring.locations()), info.memory_bytes,
      o.folder + "/steps.tsv", [&] { return budget.left() <= end_of_steps; }, fitted);
  r.parameters = fit_node(r.measured.results, r.steps, node.device, info, context);
  std::filesystem::create_directories(wiring.locations().own_parameters());
  write_table_calibration(r.parameters, fmt::format("{}/{}.yaml", wiring.locations().own_parameters(), node.device));
  run_grid(r, validation_grid(fitted, o.grid, node.cluster), o, budget, fitted);
  context.console.end_progress();
  r.refused = driver->quick_attention.refused;
  return r;
}

NodeCluster cluster_of(const std::string& gpu, const Locations& locations) {
  const std::string device = device_of(gpu);
  if (!device.empty())
    for (const std::string& name : locations.cluster_names())
      if (load_cluster(locations.find_cluster(name)).device == device) return {name, device};
  return {"dgx_h100", "h100_sxm", false};
}

}  // namespace orrery
