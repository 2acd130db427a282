// SPDX-License-Identifier: Apache-2.0
#include "sim/app/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "calibrate/campaign.hpp"
#include "calibrate/statistics.hpp"
#include "runtime/core_watch.hpp"
#include "sim/app/calibration.hpp"
#include "sim/app/evaluation.hpp"
#include "sim/app/instances.hpp"
#include "sim/app/validation_ops.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kFewestSteps = 2, kMostSteps = 8;  // of a round; the first, behind another plan, does not count
constexpr double kRoundSeconds = 0.06;                    // that short steps are repeated for
constexpr std::int64_t kMostRounds = 3;                   // times those that count, where something else uses the cores

bool is_on_host(const Scenario& s) { return device_kind(s.cluster) == DeviceKind::Host; }

/// A scenario that is being measured. Its program, executor and weights live as long as the rounds go on.
class Measuring {
 public:
  Measuring(const Scenario& scenario, std::int64_t rounds, double sensitivity, const std::shared_ptr<Peers>& peers,
            AppContext& context)
      : scenario_{scenario},
        context_{context},
        program_{make_program(scenario, context.wiring,
                              {.workspaces = &context.wiring.workspaces(device_kind(scenario.cluster)),
                               .steps = is_generation() ? std::nullopt : std::optional{rounds * kMostSteps}})},
        executor_{context.wiring.executor(
            device_kind(scenario.cluster), scenario.cluster, scenario.options.algorithms, scenario.options.memory,
            {.graphs = scenario.options.launch == LaunchRegime::Graph, .peers = peers, .watch_cores = true})},
        runner_{executed(scenario, *program_, *executor_, context.wiring)},
        sensitivity_{sensitivity} {}

  /// One generation, or a few steps, more if they are short: a step finds the caches as the step before it left
  /// them, not another plan. The first round warms up.
  Recording round() {
    Recording r = record();
    const std::vector<double> slowed = executor_->disturbed();
    Disturbance others{slowed, sensitivity_};
    if (!slowed.empty())
      for (const Span& s : r.timeline.spans) others.of_spans.push_back(executor_->disturbed(s));
    told_ = measured_round(r.timeline, others, scenario_.speculates());
    if (!is_generation())
      steps_per_round_ =
          std::clamp<std::int64_t>(static_cast<std::int64_t>(kRoundSeconds / told_.seconds), kFewestSteps, kMostSteps);
    return r;
  }
  /// What the last round tells.
  MeasuredRound told() { return std::move(told_); }

  const Program& program() const { return *program_; }

 private:
  bool is_generation() const { return scenario_.options.workload.generate.has_value(); }

  Recording record() {
    const auto before = [&](std::size_t) { context_.interrupt.check(); };
    if (!steps_.empty()) return replay(*program_, steps_, *runner_, before);
    if (is_generation()) {
      Recording r = drive(*program_, *runner_, before);
      steps_ = r.steps;
      return r;
    }
    std::vector<Step> steps;
    for (std::int64_t i = 0; i < steps_per_round_; ++i) steps.push_back(next_step());
    return replay(*program_, steps, *runner_, before);
  }

  Step next_step() {
    std::optional<Step> step = program_->next();
    if (!step) bug("a validation ran more steps than it asked for");
    return std::move(*step);
  }

  const Scenario& scenario_;
  AppContext& context_;
  std::int64_t steps_per_round_ = kFewestSteps;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<StepRunner> runner_;
  double sensitivity_;  // of a step: see Disturbance
  std::vector<Step> steps_;
  MeasuredRound told_;
};

/// Of the tokens that stand for a generation, the first behind its prompt left out: what is measured is a median too.
double median_token(const Timeline& t) {
  const std::vector<InstanceTime> times = instance_times(t);
  std::vector<double> tokens;
  for (const std::uint32_t i : steady_instances(t)) tokens.push_back(times[i].seconds());
  return median(std::move(tokens));
}

}  // namespace

ValidatedPlan predict_for_runtime(const Scenario& scenario, AppContext& context) {
  Machine machine = context.wiring.machine(scenario.options, scenario.cluster);
  machine.software = machine.experts = 0;
  KernelChoice kernels = machine.cost->kernels();
  kernels.runtime = true;
  machine.cost->choose_kernels(kernels);
  machine.workspaces = &context.wiring.workspaces(device_kind(scenario.cluster));  // it is our kernels that run
  const bool is_generation = scenario.options.workload.generate.has_value();
  Simulation s = simulate_scenario(
      scenario, machine, context.wiring, is_generation ? std::nullopt : std::optional<std::int64_t>{1},
      [&](std::size_t) { context.interrupt.check(); }, always(Logged::Memory));
  ValidatedPlan p;
  p.name = scenario.name;
  p.report = make_report({scenario, *s.program, s.recording, &machine});
  p.predicted = is_generation && !scenario.speculates() ? median_token(s.recording.timeline) : p.report.step;
  p.low = p.report.low * (p.predicted / p.report.step), p.high = p.report.high * (p.predicted / p.report.step);
  p.peak_predicted = p.report.memory.bytes;
  p.plans = digests_of(*s.program);
  predict_ops(p, machine, *s.program, s.recording);
  p.prediction = std::move(s.recording.timeline);
  return p;
}

namespace {

std::int64_t device_peak(const Timeline& t) {
  std::int64_t most = 0;
  for (const Peak& p : t.peaks)
    if (p.tier == Tier::Device) most = std::max(most, p.bytes);
  return most;
}

void keep_outcomes(ValidatedPlan& p, const Recording& recording, const Scenario& scenario) {
  p.peak_measured = std::max(p.peak_measured, device_peak(recording.timeline));
  std::vector<std::int32_t> tokens;
  for (const Outcome& o : recording.outcomes) {
    if (const auto loss = o.values.find("loss"); loss != o.values.end() && !loss->second.empty())
      p.loss.push_back(loss->second[0]);
    if (const auto next = o.values.find("next_tokens"); next != o.values.end() && !next->second.empty())
      tokens.push_back(static_cast<std::int32_t>(next->second[0]));
  }
  if (p.text.empty() && !tokens.empty()) p.text = decoded(*tokenizer_of(scenario), tokens);
}

/// The round of median duration stands for all that count.
void settle(ValidatedPlan& p, const Program& program, const CountedRounds& counted) {
  const std::vector<MeasuredRound>& rounds = counted.rounds();
  std::vector<double> as_run;
  for (const MeasuredRound& r : rounds) p.samples.push_back(r.seconds), as_run.push_back(r.as_run);
  p.measured = median(p.samples);
  p.as_run = median(std::move(as_run));
  p.rounds = counted.measured();
  p.disturbed = counted.disturbed();
  measure_ops(p.ops, program, rounds);
  std::vector<std::size_t> order(p.samples.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p.samples[a] < p.samples[b]; });
  p.measurement = rounds[order[order.size() / 2]].timeline;
}

/// Which plans fit into memory together, in order; one that is too large, and one for GPUs, stands alone.
std::vector<std::vector<std::size_t>> batches_of(const std::vector<Scenario>& scenarios,
                                                 const std::vector<ValidatedPlan>& plans, double memory) {
  std::vector<std::vector<std::size_t>> batches;
  double used = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double bytes = is_on_host(scenarios[i]) ? double(plans[i].peak_predicted) : memory;
    if (batches.empty() || used + bytes > memory) {
      batches.emplace_back();
      used = 0;
    }
    batches.back().push_back(i);
    used += bytes;
  }
  return batches;
}

struct MeasureJob {
  const std::vector<Scenario>& scenarios;
  const ValidationOptions& options;
  AppContext& context;
  std::optional<DriftProbe> probe;  // when plans are measured on the processor
  std::optional<CoresProbe> cores;  // when plans of several ranks are measured
  double rounds_done = 0, rounds_all = 1;
};

void measure_batch(MeasureJob& job, const std::vector<std::size_t>& batch, std::vector<ValidatedPlan>& plans) {
  std::vector<std::unique_ptr<Measuring>> running;
  for (const std::size_t i : batch) {
    job.context.interrupt.check();
    job.context.console.progress("measuring", job.rounds_done / job.rounds_all);
    running.push_back(std::make_unique<Measuring>(job.scenarios[i], kMostRounds * job.options.repeats + 1,
                                                  plans[i].sensitivity, job.options.peers, job.context));
  }
  std::vector<CountedRounds> counted(batch.size(), CountedRounds{static_cast<std::size_t>(job.options.repeats)});
  const auto measure = [&](std::size_t k, bool warms_up) {
    job.context.console.progress("measuring", std::min(1.0, job.rounds_done / job.rounds_all));
    const Recording r = running[k]->round();
    if (warms_up) return;
    keep_outcomes(plans[batch[k]], r, job.scenarios[batch[k]]);
    counted[k].add(running[k]->told());
  };
  for (std::int64_t round = 0; round <= kMostRounds * job.options.repeats; ++round) {
    if (std::all_of(counted.begin(), counted.end(), [](const CountedRounds& c) { return c.are_quiet(); })) break;
    if (job.cores) job.cores->sample();
    for (std::size_t k = 0; k < batch.size(); ++k) {
      if (counted[k].are_quiet()) continue;
      if (job.probe) job.probe->sample();
      measure(k, round == 0);
      job.rounds_done += round <= job.options.repeats;
    }
  }
  for (std::size_t k = 0; k < batch.size(); ++k) settle(plans[batch[k]], running[k]->program(), counted[k]);
}

}  // namespace

namespace {

using Error = double (ValidatedPlan::*)() const;

double mean_size(const std::vector<ValidatedPlan>& plans, Error error) {
  double sum = 0;
  for (const ValidatedPlan& p : plans) sum += std::abs((p.*error)());
  return plans.empty() ? 0 : sum / double(plans.size());
}

double largest(const std::vector<ValidatedPlan>& plans, Error error) {
  double worst = 0;
  for (const ValidatedPlan& p : plans) worst = std::max(worst, std::abs((p.*error)()));
  return worst;
}

}  // namespace

double Validation::mean_abs_error() const { return mean_size(plans, &ValidatedPlan::error); }
double Validation::worst_abs_error() const { return largest(plans, &ValidatedPlan::error); }
double Validation::mean_abs_error_as_run() const { return mean_size(plans, &ValidatedPlan::error_as_run); }
double Validation::worst_abs_error_as_run() const { return largest(plans, &ValidatedPlan::error_as_run); }

bool Validation::is_idle() const { return disturbed < kOftenDisturbed; }

double Validation::coverage() const {
  const auto covered = std::count_if(plans.begin(), plans.end(), [](const ValidatedPlan& p) { return p.is_covered(); });
  return plans.empty() ? 0 : double(covered) / double(plans.size());
}

namespace {

std::string grid_file(const Locations& locations, const std::string& grid) {
  if (grid == "single") return locations.scenarios() + "/validation_grid.yaml";
  if (grid == "parallel") return locations.scenarios() + "/validation_grid_parallel.yaml";
  if (grid == "inference") return locations.scenarios() + "/validation_grid_inference.yaml";
  if (grid == "speculation") return locations.scenarios() + "/validation_grid_speculation.yaml";
  if (grid == "offload") return locations.scenarios() + "/validation_grid_offload.yaml";
  if (grid == "gpu") return locations.scenarios() + "/validation_grid_gpu.yaml";
  if (std::filesystem::is_regular_file(grid)) return grid;
  throw UserError{
      fmt::format("there is no grid {}", in_quotes(grid)),
      "the grids are single, parallel, inference, speculation, offload and gpu; any other is a file with a list "
      "`plans`"};
}

void keep_probe(Validation& v, const DriftProbe& probe, const HostParameters& when_calibrated) {
  v.is_probed = true;
  v.drift = probe.drift(), v.worst_drift = probe.worst(), v.disturbed = probe.disturbed();
  v.slowdown = slowdown_since(probe.seconds(), when_calibrated.probe);
  v.memory_slowdown = slowdown_since(probe.pass_seconds(), when_calibrated.memory_probe);
}

}  // namespace

void check_measurable(const std::vector<Scenario>& scenarios, bool with_peers, const Wiring& wiring) {
  if (const auto it = std::find_if(scenarios.begin(), scenarios.end(), is_on_host); with_peers && it != scenarios.end())
    throw UserError{fmt::format("option --peers is for the device cuda, '{}' runs on the processor", it->name),
                    "give it a cluster of GPUs, or leave out --peers"};
  const auto it = std::find_if_not(scenarios.begin(), scenarios.end(), is_on_host);
  if (it == scenarios.end()) return;
  try {
    wiring.gpus();
  } catch (const MissingError& e) {
    throw MissingError{
        fmt::format("scenario '{}' needs devices '{}' to be measured: {}", it->name, it->cluster.device, e.what())};
  }
}

Validation validate_scenarios(const std::vector<Scenario>& scenarios, const ValidationOptions& options,
                              AppContext& context) {
  const auto start = std::chrono::steady_clock::now();
  check_measurable(scenarios, options.peers != nullptr, context.wiring);
  Validation v;
  for (std::size_t i = 0; i < scenarios.size(); ++i) {
    context.console.progress("predicting", double(i) / double(scenarios.size()));
    v.plans.push_back(predict_for_runtime(scenarios[i], context));
  }
  MeasureJob job{scenarios, options, context, std::nullopt, std::nullopt};
  for (std::size_t i = 0; i < scenarios.size(); ++i) {
    if (!is_on_host(scenarios[i])) continue;
    if (!job.probe) {
      expect_quiet_core(context.wiring.host_parameters().quiet_core.base());
      job.probe.emplace();
    }
    if (v.plans[i].report.ranks > 1 && !job.cores) job.cores.emplace();
  }
  job.rounds_all = double(scenarios.size()) * double(options.repeats + 1);
  for (const auto& batch : batches_of(scenarios, v.plans, options.memory_share * detected_memory().base()))
    measure_batch(job, batch, v.plans);
  context.console.end_progress();
  v.machine = v.plans.front().measurement.machine;
  v.parameters = v.plans.front().report.parameters;
  if (job.probe) keep_probe(v, *job.probe, context.wiring.host_parameters());
  if (job.cores) v.cores = job.cores->cores();
  v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return v;
}

std::vector<Scenario> validation_grid(const AppContext& context, const std::string& grid, const std::string& cluster) {
  const Locations& locations = context.wiring.locations();
  const Node document = read_yaml(grid_file(locations, grid));
  const Node* plans = document.find("plans");
  if (plans == nullptr || plans->kind != Node::Kind::List || plans->items.empty())
    throw UserError{at(document, "expected a list `plans` of scenarios")};
  std::vector<Scenario> out;
  for (const Node& plan : plans->items) {
    const Node* name = plan.find("name");
    if (name == nullptr) throw UserError{at(plan, "a plan of the grid needs a name")};
    Node scenario = plan;
    std::erase_if(scenario.fields, [](const auto& f) { return f.first == "name"; });
    if (!cluster.empty())
      for (auto& [key, value] : scenario.fields)
        if (key == "cluster") value.scalar = cluster;
    out.push_back(make_scenario(std::move(scenario), name->scalar, locations));
  }
  return out;
}

}  // namespace orrery
