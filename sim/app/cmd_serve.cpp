// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/partial_file.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/serving/serve_report.hpp"
#include "sim/app/serving/serve_trace.hpp"

namespace orrery {
namespace {

/// One line per answer, as they come: the file grows, memory does not.
class AnswerFile {
 public:
  AnswerFile(const std::string& path, bool intervals) : file_{path} {
    file_.stream() << "request_id,replica,arrival_s,input_tokens,output_tokens,shared_tokens,preemptions";
    for (const char* name : {"ttft", "tpot", "e2e"})
      file_.stream() << fmt::format(",{0}_s", name) << (intervals ? fmt::format(",{0}_low_s,{0}_high_s", name) : "");
    file_.stream() << "\n";
  }
  void add(const Answer& a, const std::array<ServedInterval, kRequestTimes>* intervals) {
    file_.stream() << fmt::format("{},{},{:.6f},{},{},{},{}", a.id, a.replica, a.arrival, a.prompt, a.output, a.shared,
                                  a.preemptions);
    for (std::size_t t = 0; t < kRequestTimes; ++t) {
      file_.stream() << fmt::format(",{:.6f}", time_of(a, request_time(t)));
      if (intervals) file_.stream() << fmt::format(",{:.6f},{:.6f}", (*intervals)[t].low, (*intervals)[t].high);
    }
    file_.stream() << "\n";
  }
  void close() { file_.close(); }

 private:
  PartialFile file_;
};

class Serve final : public Command {
 public:
  std::string_view name() const override { return "serve"; }
  std::string_view summary() const override { return "predict what users of a served model get"; }
  std::string_view arguments() const override { return "[SCENARIO]"; }
  Arity arity() const override { return {0, 1}; }
  std::string details() const override {
    return "The scenario's workload is `serve`. Requests come from a trace or are drawn; the report has times to the\n"
           "first token, between tokens and to the last one, goodput under an SLO, and how full the pool of keys and\n"
           "values was.\n";
  }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = scenario_.flags();
    all.push_back({"--requests", "FILE", "also write one line per answered request (CSV), with intervals",
                   [this](const std::string& v) { requests_ = v; }});
    all.push_back({"--trace", "FILE.json", "also write the steps of each replica as Chrome JSON",
                   [this](const std::string& v) { trace_ = v; }});
    all.push_back({"--no-interval", "", "leave out the 90 % intervals, which take four more simulations",
                   [this](const std::string&) { interval_ = false; }});
    all.push_back({"--fail", "", "exit with 1 when it does not fit or is overloaded",
                   [this](const std::string&) { fail_ = true; }});
    return all;
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Scenario scenario = scenario_.load(arguments.empty() ? "" : arguments[0], context);
    std::optional<AnswerFile> file;
    if (!requests_.empty()) file.emplace(requests_, interval_);
    ServeRequest request{.scenario = scenario, .wiring = context.wiring, .interval = interval_};
    if (file) request.on_answer = [&](const auto& a, const auto* intervals) { file->add(a, intervals); };
    std::optional<ServeTrace> trace;
    if (!trace_.empty()) trace.emplace(trace_);
    if (trace) request.on_step = [&](const ServedStep& s) { trace->add(s); };
    request.check = [&] { context.interrupt.check(); };
    const ServeReport report = serve_scenario(request);
    if (file) file->close();
    if (trace) trace->close();
    context.console.out(context.json ? to_json(report).dump(2) + "\n" : to_text(report, context.console));
    return fail_ && (!report.fits() || report.result.is_overloaded()) ? exit_code::kMissed : exit_code::kOk;
  }

 private:
  ScenarioFlags scenario_;
  std::string requests_, trace_;
  bool interval_ = true, fail_ = false;
};

}  // namespace

std::unique_ptr<Command> make_serve() { return std::make_unique<Serve>(); }

}  // namespace orrery
