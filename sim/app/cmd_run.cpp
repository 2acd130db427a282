// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "sim/app/activity_report.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/evaluation.hpp"
#include "sim/app/instances.hpp"
#include "sim/app/launch.hpp"
#include "sim/app/npy.hpp"
#include "sim/app/report.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/wiring.hpp"
#include "sim/timeline/trace_file.hpp"

namespace orrery {
namespace {

class Run final : public Command {
 public:
  std::string_view name() const override { return "run"; }
  std::string_view summary() const override { return "execute a scenario with real numbers and measure it"; }
  std::string_view arguments() const override { return "[SCENARIO]"; }
  Arity arity() const override { return {0, 1}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = scenario_.flags();
    const auto text = [&](std::string name, std::string value, std::string meaning, std::string& out) {
      all.push_back({std::move(name), std::move(value), std::move(meaning), [&out](const std::string& v) { out = v; }});
    };
    text("--device", "DEVICE",
         "host; cuda; null, which keeps the order and computes nothing; or paced: host, whose ops are held as long as "
         "they are predicted to take",
         device_);
    text("--trace", "FILE", "also write the timeline to FILE (.orrery, .pftrace or .json)", trace_);
    text("--logits", "FILE.npy", "write the logits of a forward pass as a NumPy array", logits_);
    text("--tokens", "IDS|FILE", "token ids instead of the scenario's text, prompt, or random tokens", tokens_);
    text("--text", "TEXT", "the same as a text for the scenario's tokenizer", text_);
    text("--save", "FILE", "write the weights as they are at the end (safetensors)", save_);
    all.push_back({"--loss", "", "print the loss of each step; of forward passes, of each next token",
                   [this](const std::string&) { loss_ = true; }});
    all.push_back({"--steps", "N", "training steps or passes to run",
                   [this](const std::string& v) { steps_ = integer_option("--steps", v, 1); }});
    all.push_back({"--pace", "N", "of the device paced: ops are held N times as long as predicted",
                   [this](const std::string& v) { pace_ = double(integer_option("--pace", v, 1)); }});
    all.push_back({"--activities", "",
                   "of the device cuda: times from CUPTI's records of kernels and copies, not from events around ops",
                   [this](const std::string&) { gpu_.activities = true; }});
    all.push_back({"--tf32", "", "of the device cuda: products of f32 round their operands to tf32",
                   [this](const std::string&) { gpu_.tf32 = true; }});
    all.push_back({"--graphs", "", "of the device cuda: plans that come again are replayed by CUDA graphs",
                   [this](const std::string&) { gpu_.graphs = true; }});
    all.push_back({"--plain-allocation", "", "of the device cuda: ask it for each tensor, instead of one arena",
                   [this](const std::string&) { gpu_.plain = true; }});
    all.push_back({"--repeat", "N", "run all of it N times",
                   [this](const std::string& v) { repeat_ = integer_option("--repeat", v, 1); }});
    for (Flag& f : peers_.flags("reports")) all.push_back(std::move(f));
    for (Flag& f : out_.flags()) all.push_back(std::move(f));
    return all;
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    Scenario scenario = scenario_.load(arguments.empty() ? "" : arguments[0], context);
    const DeviceKind device = choose_device(scenario);
    refuse_gpu_flags(device);
    gpu_.graphs = gpu_.graphs || scenario.options.launch == LaunchRegime::Graph;
    if (gpu_.activities) gpu_.account = std::make_shared<ActivityAccount>();
    gpu_.peers = peers_.meet(context.environment);
    const bool is_forward = !logits_.empty() || (loss_ && scenario.options.workload.generate);
    if (is_forward) make_forward_pass(scenario);
    const std::unique_ptr<Program> program =
        make_program(scenario, context.wiring, request_for(scenario, device, context));
    std::optional<Machine> modelled;
    if (device == DeviceKind::Paced) modelled = context.wiring.machine(scenario.options, scenario.cluster);
    const std::unique_ptr<Executor> executor =
        modelled ? context.wiring.paced(*modelled, pace_)
                 : context.wiring.executor(device, scenario.cluster, scenario.options.algorithms,
                                           scenario.options.memory, gpu_);
    Recording recording = execute(scenario, *program, *executor, context);
    Report report = measure(scenario, *program, recording, context);
    if (loss_ && scenario.options.workload.infer)
      report.loss = {next_token_loss(logits_of(scenario, *program, recording), input_tokens(recording))};
    nlohmann::json document = to_json(report);
    if (gpu_.account) document["activities"] = to_json(*gpu_.account);
    const PlanDigests digests = digests_of(*program);
    if (gpu_.peers && gpu_.peers->process() != 0) {
      if (!save_.empty()) send_weights(scenario, *program, *executor);
      return exit_code::kOk;
    }
    write_files(context, scenario, *program, *executor, recording, digests);
    const auto folder =
        write_run_directory(context, out_, scenario, document, {{"timeline.orrery", recording.timeline, digests}});
    print(context, report, document, folder);
    return exit_code::kOk;
  }

 private:
  void refuse_gpu_flags(DeviceKind device) const {
    peers_.check();
    if (device == DeviceKind::Cuda) return;
    for (const auto& [given, flag] : {std::pair{gpu_.tf32, "--tf32"},
                                      {gpu_.activities, "--activities"},
                                      {gpu_.graphs, "--graphs"},
                                      {gpu_.plain, "--plain-allocation"},
                                      {peers_.given(), "--peers"}})
      if (given) throw UserError{fmt::format("option {} is for the device cuda", flag), "add --device cuda"};
  }

  DeviceKind choose_device(const Scenario& s) const {
    return device_.empty() ? device_kind(s.cluster) : device_kind(device_);
  }

  ProgramRequest request_for(const Scenario& s, DeviceKind device, const AppContext& context) const {
    ProgramRequest r{.workspaces = &context.wiring.workspaces(device), .steps = steps_};
    const Workload& w = s.options.workload;
    if (repeat_ > 1 && !w.generate) r.steps = repeat_ * steps_.value_or(w.train ? w.train->steps : w.infer->steps);
    if (!tokens_.empty() && !text_.empty()) throw UserError{"--tokens and --text exclude each other"};
    if (!tokens_.empty()) r.tokens = read_tokens(tokens_);
    if (!text_.empty()) {
      const std::vector<TokenId> ids = tokenizer_of(s)->encode(text_);
      r.tokens.emplace(ids.begin(), ids.end());
    }
    return r;
  }

  /// Of several generations the one of median speed.
  Recording execute(const Scenario& s, Program& program, Executor& executor, AppContext& context) const {
    const auto runner = executed(s, program, executor, context.wiring);
    const auto before = [&](std::size_t step) {
      context.interrupt.check();
      const Workload& w = s.options.workload;
      const double all = double(w.train ? w.train->steps : w.generate ? w.generate->tokens : w.infer->steps);
      context.console.progress("running", std::min(1.0, double(step) / all));
    };
    std::vector<Recording> runs;
    runs.push_back(drive(program, *runner, before));
    if (s.options.workload.generate)
      for (std::int64_t i = 1; i < repeat_; ++i) runs.push_back(replay(program, runs.front().steps, *runner, before));
    const auto step_of = [&](const Recording& r) {
      if (s.speculates()) {
        const std::vector<double> rounds = round_seconds(r.timeline);
        return std::accumulate(rounds.begin(), rounds.end(), 0.0) / double(rounds.size());
      }
      return mean_seconds(instance_times(r.timeline), steady_instances(r.timeline));
    };
    std::sort(runs.begin(), runs.end(),
              [&](const Recording& a, const Recording& b) { return step_of(a) < step_of(b); });
    Recording chosen = std::move(runs[runs.size() / 2]);
    chosen.timeline = without_gaps(chosen.timeline);
    return chosen;
  }

  Report measure(const Scenario& s, const Program& program, const Recording& recording,
                 const AppContext& context) const {
    const auto start = std::chrono::steady_clock::now();
    std::optional<Machine> machine;
    if (s.cluster.device != "host" || context.wiring.is_calibrated())
      machine = context.wiring.machine(s.options, s.cluster);
    Report report = make_report({s, program, recording, machine ? &*machine : nullptr});
    report.device = !device_.empty() ? device_ : device_kind(s.cluster) == DeviceKind::Host ? "host" : "cuda";
    if (!report.tokens.empty()) report.text = decoded(*tokenizer_of(s), report.tokens);
    report.wall_seconds =
        report.total + std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return report;
  }

  void write_files(AppContext& context, const Scenario& s, const Program& program, Executor& executor,
                   const Recording& recording, const PlanDigests& digests) const {
    const auto lock = context.interrupt.writing();
    if (!logits_.empty()) {
      const Logits logits = logits_of(s, program, recording);
      const bool is_wide = s.options.workload.infer->dtype == Precision::F64;
      write_file_atomically(logits_, npy_bytes(logits.values, logits.shape, is_wide ? NpyWidth::F64 : NpyWidth::F32));
    }
    if (!save_.empty()) save_weights(s, program, executor, save_);
    if (!trace_.empty())
      write_trace({recording.timeline, digests, {{"scenario", s.name}, {"tool", tool_version()}}}, trace_);
  }

  void print(AppContext& context, const Report& report, const nlohmann::json& document,
             const std::optional<std::string>& folder) const {
    if (context.json)
      return context.console.out(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    std::string text = to_text(report, context.console);
    if (loss_)
      for (std::size_t i = 0; i < report.loss.size(); ++i)
        text += fmt::format("loss {:>5}  {:.9g}\n", i + 1, report.loss[i]);
    if (gpu_.account) text += to_text(*gpu_.account);
    if (folder) text += fmt::format("\nwritten to {}\n", *folder);
    context.console.out(text);
  }

  ScenarioFlags scenario_;
  RunDirectoryOptions out_;
  std::string device_, trace_, logits_, tokens_, text_, save_;
  PeerFlags peers_;
  std::optional<std::int64_t> steps_;
  std::int64_t repeat_ = 1;
  double pace_ = 1;
  DeviceUse gpu_;
  bool loss_ = false;
};

}  // namespace

std::unique_ptr<Command> make_run() { return std::make_unique<Run>(); }

}  // namespace orrery
