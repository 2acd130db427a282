// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/app/cached_training.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/expectations.hpp"
#include "sim/app/report.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/what_if.hpp"
#include "sim/app/wiring.hpp"
#include "sim/timeline/trace_file.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMostSpans = 1'000'000;

class Simulate final : public Command {
 public:
  std::string_view name() const override { return "simulate"; }
  std::string_view summary() const override { return "predict time and memory of a scenario"; }
  std::string_view arguments() const override { return "[SCENARIO]"; }
  Arity arity() const override { return {0, 1}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = scenario_.flags();
    all.push_back({"--trace", "FILE",
                   "also write the timeline, without changes of --what-if, to FILE (.orrery, .pftrace or .json)",
                   [this](const std::string& v) { trace_ = v; }});
    all.push_back({"--what-if", "PARAMETER=x2", "also predict with a parameter changed; repeatable",
                   [this](const std::string& v) { changes_.push_back(parse_change(v)); }});
    all.push_back({"--steps", "N", "steps to simulate; default: all of a generation, at most 3 others",
                   [this](const std::string& v) { steps_ = integer_option("--steps", v, 1); }});
    all.push_back({"--fail", "", "exit with 1 when it does not fit or misses an expectation",
                   [this](const std::string&) { fail_ = true; }});
    for (Flag& f : out_.flags()) all.push_back(std::move(f));
    return all;
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Scenario scenario = scenario_.load(arguments.empty() ? "" : arguments[0], context);
    if (scenario.options.workload.cached_training) return run_cached(context, scenario);
    const Machine machine = context.wiring.machine(scenario.options, scenario.cluster);
    if (!machine.doubt.empty()) context.console.warn(machine.doubt);
    const auto before_step = [&](std::size_t step) {
      context.interrupt.check();
      context.console.progress("simulating", 0.0 + double(step > 0));
    };
    Simulation s = simulate_scenario(scenario, machine, context.wiring, steps_, before_step,
                                     [&](const Program& program) { return logged(program); });
    Report report = make_report({scenario, *s.program, s.recording, &machine});
    report.wall_seconds = s.wall_seconds;
    const std::vector<ExpectationResult> expectations = check_expectations(scenario, report);
    const std::vector<WhatIf> rows = predict_changes(scenario, changes_, context);
    nlohmann::json document = to_json(report);
    if (!rows.empty()) document["what_if"] = what_if_json(report, rows);
    add_expectations(document, expectations);
    if (!trace_.empty()) {
      const auto lock = context.interrupt.writing();
      write_trace({s.recording.timeline,
                   digests_of(*s.program),
                   {{"scenario", scenario.name},
                    {"tool", tool_version()},
                    {"devices_per_node", std::to_string(scenario.cluster.devices_per_node)}}},
                  trace_);
    }
    const auto folder = write_run_directory(context, out_, scenario, document, traces_of(s, context.console));
    print(context, report, rows, expectations, document, folder);
    bool misses = !all_fits(report);
    for (const ExpectationResult& e : expectations) misses |= !e.holds;
    return fail_ && misses ? exit_code::kMissed : exit_code::kOk;
  }

 private:
  /// Steps whose messages differ have no timeline.
  int run_cached(AppContext& context, const Scenario& scenario) const {
    if (!trace_.empty() || !changes_.empty() || steps_ || !out_.path.empty())
      throw UserError{"a cached training has no timeline: --trace, --what-if, --steps and --out do not apply",
                      "set workload.cached_training.steps"};
    const CachedTrainingReport report =
        simulate_cached_training(scenario, context.wiring, [&] { context.interrupt.check(); });
    context.console.out(context.json ? to_json(report).dump(2) + "\n" : to_text(report));
    return exit_code::kOk;
  }

  static void add_expectations(nlohmann::json& document, const std::vector<ExpectationResult>& expectations) {
    for (const ExpectationResult& e : expectations)
      document["expectations"].push_back({{"metric", e.metric},
                                          {"expected", e.expected},
                                          {"actual", e.actual},
                                          {"tolerance", e.tolerance},
                                          {"holds", e.holds}});
  }

  /// Samples of memory are of use in a timeline that is written.
  Logged logged(const Program& program) const {
    const bool is_asked = !trace_.empty() || !out_.path.empty();
    const bool is_small = !out_.disabled && program.plans().front().ops.size() <= kMostSpans;
    return is_asked || is_small ? Logged::Memory : Logged::Nothing;
  }

  /// A timeline of millions of spans is written only where a folder was asked for.
  std::vector<NamedTrace> traces_of(Simulation& s, Console& console) const {
    std::vector<NamedTrace> traces;
    const std::size_t spans = s.recording.timeline.spans.size();
    if (out_.disabled) return traces;
    if (out_.path.empty() && spans > kMostSpans)
      console.note(
          fmt::format("the timeline of {} spans is left out of the run directory; --out DIR or --trace FILE "
                      "writes it",
                      spans));
    else
      traces.push_back({"timeline.orrery", std::move(s.recording.timeline), digests_of(*s.program)});
    return traces;
  }

  static void print(AppContext& context, const Report& report, const std::vector<WhatIf>& rows,
                    const std::vector<ExpectationResult>& expectations, const nlohmann::json& document,
                    const std::optional<std::string>& folder) {
    Console& console = context.console;
    if (context.json) return console.out(document.dump(2) + "\n");
    std::string text = to_text(report, console);
    if (!rows.empty()) text += what_if_text(report, rows);
    for (const ExpectationResult& e : expectations)
      text += fmt::format("{} {}\n", e.holds ? console.good("ok    ") : console.bad("missed"), e.text);
    if (folder) text += fmt::format("\nwritten to {}\n", *folder);
    console.out(text);
  }

  ScenarioFlags scenario_;
  RunDirectoryOptions out_;
  std::vector<Change> changes_;
  std::optional<std::int64_t> steps_;
  std::string trace_;
  bool fail_ = false;
};

}  // namespace

std::unique_ptr<Command> make_simulate() { return std::make_unique<Simulate>(); }

}  // namespace orrery
