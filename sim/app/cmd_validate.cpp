// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/app/calibration.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/evaluation.hpp"
#include "sim/app/launch.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/validation.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {
namespace {

constexpr std::size_t kWorstOps = 5, kMostDetailed = 4, kSampleLetters = 160;

class Validate final : public Command {
 public:
  std::string_view name() const override { return "validate"; }
  std::string_view summary() const override { return "predict, run and compare; calibrates first where it has to"; }
  std::string_view arguments() const override { return "[SCENARIO…]"; }
  Arity arity() const override { return {0, 1000}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = scenario_.flags();
    all.push_back(
        {"--repeats", "N",
         "rounds that count, at least 5; up to three times as many are measured where something else uses the cores",
         [this](const std::string& v) { options_.repeats = integer_option("--repeats", v, 5); }});
    all.push_back({"--quick", "", "calibrate in 20 s instead of a minute, where it has to",
                   [this](const std::string&) { calibrate_.quick = true; }});
    all.push_back({"--calibrations", "N",
                   "calibrate in any case, N times, and validate behind each: what one calibration is off by, all ops "
                   "in common, shows only over several",
                   [this](const std::string& v) { calibrations_ = integer_option("--calibrations", v, 1); }});
    all.push_back({"--grid", "GRID",
                   "without scenarios: `single` (one device), `parallel` (2 to 16 ranks), `inference` (1 to 4 ranks), "
                   "`speculation`, `offload` (tiers behind paced links), `gpu` (plans for an H100) or a file",
                   [this](const std::string& v) { grid_ = v; }});
    all.push_back({"--max-error", "PERCENT", "exit with 1 when the mean error is larger",
                   [this](const std::string& v) { max_error_ = percent_option("--max-error", v, 0, INFINITY); }});
    for (Flag& f : peers_.flags("reports")) all.push_back(std::move(f));
    for (Flag& f : out_.flags()) all.push_back(std::move(f));
    return all;
  }
  std::string details() const override {
    return "Without arguments the plans of scenarios/validation_grid.yaml are validated, with --grid parallel, "
           "inference,\nspeculation, offload or gpu those of scenarios/validation_grid_parallel.yaml and so on. Behind "
           "several calibrations,\ntimelines and the ops that were off most are those of the last.\n";
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    if (grid_ && !arguments.empty())
      throw UserError{"option --grid is for a validation without scenarios", "leave one of them out"};
    std::vector<Scenario> scenarios;
    for (const std::string& a : arguments) scenarios.push_back(scenario_.load(a, context));
    if (arguments.empty()) scenarios = validation_grid(context, grid_.value_or("single"));
    check_measurable(scenarios, peers_.given(), context.wiring);
    const bool on_host = std::any_of(scenarios.begin(), scenarios.end(),
                                     [](const Scenario& s) { return device_kind(s.cluster) == DeviceKind::Host; });
    if (!on_host && calibrations_ > 0)
      throw UserError{"option --calibrations is for plans on the processor",
                      "calibrate GPUs with `orrery calibrate --device cuda` or `orrery node-report`"};
    options_.peers = peers_.meet(context.environment);
    std::vector<Validation> validations;
    for (std::int64_t i = 0; i < std::max<std::int64_t>(1, calibrations_); ++i) {
      if (on_host) calibrate_if_needed(context, i);
      validations.push_back(validate_scenarios(scenarios, options_, context));
    }
    std::vector<const Validation*> all;
    for (const Validation& each : validations) all.push_back(&each);
    const int code = max_error_ && mean_abs_error(all) > *max_error_ ? exit_code::kMissed : exit_code::kOk;
    if (options_.peers && options_.peers->process() != 0) return code;
    Validation& v = validations.back();
    const nlohmann::json document = to_json(all);
    std::vector<std::string> folders;
    std::string details;
    const bool asked = !arguments.empty();  // for these scenarios; a grid is told of in its table alone
    for (std::size_t i = 0; i < v.plans.size() && (asked || !out_.path.empty()); ++i) {
      if (asked && i < kMostDetailed) details += detail_text(v.plans[i], context.console);
      if (const auto folder = leave_folder(context, scenarios[i], v.plans[i], document, v.plans.size()))
        folders.push_back(*folder);
    }
    if (context.json)
      context.console.out(document.dump(2) + "\n");
    else
      context.console.out(to_text(all, context.console) + details + next_text(arguments, folders, context.console));
    return code;
  }

 private:
  void calibrate_if_needed(AppContext& context, std::int64_t before) {
    const std::string reason = calibrations_ > 1   ? fmt::format("{} of {}", before + 1, calibrations_)
                               : calibrations_ > 0 ? "asked for"
                                                   : reason_to_calibrate(context);
    const std::string path = context.wiring.locations().host_parameters();
    if (reason.empty()) return;
    context.console.note(fmt::format("calibrating this computer ({}); about {} s", reason, calibrate_.quick ? 25 : 80));
    const Calibration c = calibrate_to(path, calibrate_, context);
    context.console.note(fmt::format("calibrated {}: {} laws, products {}, memory {}, written to {}",
                                     c.parameters.provenance.machine, c.parameters.laws.size(),
                                     to_text(c.parameters.peak), to_text(c.parameters.memory_bandwidth), path));
  }

  static std::string detail_text(const ValidatedPlan& p, const Console& console) {
    std::string text = fmt::format("\n{}\n", console.bold(p.name));
    if (p.report.prefill)
      text += fmt::format("  prefill predicted {}, then one token each {}\n", to_text(Seconds{*p.report.prefill}),
                          to_text(Seconds{p.predicted}));
    if (!p.loss.empty())
      text += fmt::format("  loss {:.4f} → {:.4f} in {} steps of real training\n", p.loss.front(), p.loss.back(),
                          p.loss.size());
    if (!p.text.empty()) text += fmt::format("  generated: {}\n", one_line(p.text, kSampleLetters));
    text += "  where the prediction was off most:\n" + worst_ops_text(p, kWorstOps);
    return text;
  }

  std::optional<std::string> leave_folder(AppContext& context, const Scenario& scenario, ValidatedPlan& p,
                                          const nlohmann::json& document, std::size_t plans) const {
    RunDirectoryOptions options = out_;
    if (!options.path.empty() && plans > 1) options.path += "/" + scenario.name;
    return write_run_directory(context, options, scenario, document,
                               {{"predicted.orrery", std::move(p.prediction), p.plans},
                                {"timeline.orrery", std::move(p.measurement), p.plans}});
  }

  static std::string next_text(const std::vector<std::string>& arguments, const std::vector<std::string>& folders,
                               const Console& console) {
    std::string text;
    for (const std::string& f : folders)
      text +=
          fmt::format("{}  {}/timeline.orrery (measured), predicted.orrery\n", text.empty() ? "\ntimelines\n" : "", f);
    if (arguments.empty()) return text;
    text += fmt::format("\n{}\n", console.bold("what to try next"));
    if (!folders.empty()) {
      text += fmt::format("  orrery compare {0}/timeline.orrery {0}/predicted.orrery\n", folders.front());
      text += fmt::format("  orrery trace convert {}/timeline.orrery timeline.pftrace      # open in ui.perfetto.dev\n",
                          folders.front());
    }
    text += fmt::format("  orrery run {} --steps 200 --save weights.safetensors\n", arguments.front());
    return text +
           "  orrery simulate llama3_8b_h100 --what-if memory.bandwidth=x1.43   # an H100 you do not own, with the "
           "memory of an H200\n";
  }

  ScenarioFlags scenario_;
  RunDirectoryOptions out_;
  ValidationOptions options_;
  PeerFlags peers_;
  CalibrateOptions calibrate_;
  std::optional<std::string> grid_;
  std::optional<double> max_error_;
  std::int64_t calibrations_ = 0;  // in any case; 0: one where there is reason to
};

}  // namespace

std::unique_ptr<Command> make_validate() { return std::make_unique<Validate>(); }

}  // namespace orrery
