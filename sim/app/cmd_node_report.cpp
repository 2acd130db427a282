// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "calibrate/this_machine.hpp"
#include "hw_models/device_model.hpp"
#include "sim/app/child_process.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/node_report.hpp"
#include "sim/app/node_shares.hpp"
#include "sim/app/report.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/base/error.hpp"
#include "sim/base/library.hpp"
#include "sim/base/table.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// What the tests of kernels print, and whether they passed; nothing when they are not beside the program.
struct SelfTest {
  std::string text;
  bool is_there = false, passed = false;
};

constexpr Seconds kSelfTest{120.0};  // what hangs must not take the time of all that follows

SelfTest run_self_test(const Interrupt& interrupt) {
  const fs::path program = beside_program("gpu_ops_test");
  if (!fs::exists(program))
    return {fmt::format("{} is not there: it is built where Catch2 is\n", program.filename().string()), false, false};
  ChildEnd end = run_child(program, kSelfTest, [&] { return interrupt.is_requested(); });
  interrupt.check();
  if (end.timed_out) end.text += fmt::format("stopped after {}\n", to_text(kSelfTest));
  return {.text = std::move(end.text), .is_there = true, .passed = end.succeeded};
}

std::shared_ptr<GpuDriver> gpus_of(const Wiring& wiring) {
  try {
    return wiring.gpus();
  } catch (const MissingError& e) {
    throw MissingError{fmt::format("not measured on a GPU: {}", e.what())};
  }
}

class ReportNode final : public Command {
 public:
  std::string_view name() const override { return "node-report"; }
  std::string_view summary() const override {
    return "test, calibrate and validate the GPUs of this computer, into one folder";
  }
  std::vector<Flag> flags() override {
    return {{"--out", "FOLDER", "what it writes; a folder of an earlier report is gone on with (node-report)",
             [this](const std::string& v) { options_.folder = v; }},
            {"--quick", "", "fewer points and plans",
             [this](const std::string&) { options_.quick = true, options_.clocks = Seconds{10}; }},
            {"--budget", "TIME", "what is not begun by then is left to another run with the same folder (450 s)",
             [this](const std::string& v) { options_.budget = time_option("--budget", v); }},
            {"--seed", "N", "of the sizes that are measured",
             [this](const std::string& v) { options_.seed = integer_option("--seed", v, 0); }}};
  }

  int run(AppContext& context, const std::vector<std::string>&) override {
    const auto start = std::chrono::steady_clock::now();
    const std::shared_ptr<GpuDriver> driver = gpus_of(context.wiring);
    fs::create_directories(options_.folder);
    nlohmann::json document = describe(*driver);
    save("machine.json", document.dump(2) + "\n");
    context.console.progress("self-test", 0);
    const SelfTest test = run_self_test(context.interrupt);
    save("self_test.txt", test.text);
    NodeReportOptions rest = options_;
    rest.budget -= Seconds{std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
    const NodeReport report = report_node(driver, rest, context);
    const std::string text = summary(document, test, report);
    save("report.txt", text);
    add_plans(document, test, report);
    save("report.json", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    context.console.out(context.json ? document.dump(2) + "\n" : text);
    return test.is_there && !test.passed ? exit_code::kMissed : exit_code::kOk;
  }

 private:
  void save(const std::string& file, const std::string& text) const {
    write_file_atomically(options_.folder + "/" + file, text);
  }

  nlohmann::json describe(const GpuDriver& driver) const {
    nlohmann::json gpus = nlohmann::json::array();
    for (int d = 0; d < driver.num_devices(); ++d) {
      const GpuInfo i = driver.info(d);
      gpus.push_back({{"name", i.name},
                      {"capability", i.capability},
                      {"processors", i.processors},
                      {"memory", i.memory_bytes},
                      {"l2", i.l2_bytes},
                      {"driver", i.driver}});
    }
    return {{"schema_version", kSchemaVersion},  {"tool", tool_version()},  {"date", today()},
            {"processor", detected_processor()}, {"gpus", std::move(gpus)}, {"seed", options_.seed}};
  }

  static void add_plans(nlohmann::json& document, const SelfTest& test, const NodeReport& report) {
    document["self_test"] = test.is_there ? test.passed ? "passed" : "failed" : "not built";
    document["mean_abs_error"] = report.mean_abs_error();
    document["worst_abs_error"] = report.worst_abs_error();
    document["median_op_error"] = report.op_error();
    document["exact_peaks"] = report.exact_peaks();
    document["laws"] = report.parameters.fitted;
    document["benches"] = {{"measured", report.measured.results.size()}, {"left", report.measured.left}};
    document["benches"]["skipped"] = report.measured.skipped;
    document["steps"] = {{"measured", report.steps.measured}, {"left", report.steps.left}};
    document["steps"]["skipped"] = report.steps.skipped;
    document["shares"] = nlohmann::json::array();
    for (const KernelShare& s : kernel_shares(report.measured.results))
      document["shares"].push_back(
          {{"kernel", s.kind}, {"share", s.share}, {"wanted", s.wanted}, {"points", s.points}});
    document["kernels_not_used"] = report.refused;
    document["not_counted"] = report.counts.problem;
    document["plans_left"] = report.plans_left;
    document["plans"] = nlohmann::json::array();
    for (const NodePlan& p : report.plans)
      document["plans"].push_back({{"name", p.name},
                                   {"predicted", p.predicted},
                                   {"low", p.low},
                                   {"high", p.high},
                                   {"measured", p.measured},
                                   {"peak_predicted", p.peak_predicted},
                                   {"peak_measured", p.peak_measured},
                                   {"median_op_error", p.op_error},
                                   {"first_loss", p.first_loss},
                                   {"last_loss", p.last_loss},
                                   {"shares", p.shares},
                                   {"problem", p.problem}});
  }

  static Table table_of(const std::vector<NodePlan>& plans) {
    Table table{{{"plan"},
                 {"predicted", Align::Right},
                 {"measured", Align::Right},
                 {"error", Align::Right},
                 {"of its ops", Align::Right},
                 {"peak memory"}}};
    for (const NodePlan& p : plans) {
      if (!p.ran()) {
        table.add({p.name, "", "", "", "", p.problem});
        continue;
      }
      const std::string peak = to_text(Bytes{double(p.peak_measured)});
      table.add({p.name, to_text(Seconds{p.predicted}), to_text(Seconds{p.measured}),
                 p.shares ? "shared" : fmt::format("{:+.1f} %", 100 * p.error()),
                 p.op_error > 0 ? fmt::format("{:.1f} %", 100 * p.op_error) : "",
                 p.peak_measured == p.peak_predicted
                     ? peak + " ="
                     : fmt::format("{} / {}", to_text(Bytes{double(p.peak_predicted)}), peak)});
    }
    return table;
  }

  static std::string counts_text(const GpuCounts& counts) {
    std::string text;
    Table table{{{"counted"}, {"traffic", Align::Right}, {"as said", Align::Right}, {"tensor cores", Align::Right}}};
    for (const CountedOp& c : counts.ops)
      table.add({c.name, to_text(Bytes{c.read + c.written}),
                 c.said > 0 ? fmt::format("{:.2f}", (c.read + c.written) / c.said) : "",
                 fmt::format("{:.0f} %", 100 * c.tensor_share)});
    if (!counts.ops.empty()) text += table.text("  ") + "\n";
    if (!counts.problem.empty()) text += fmt::format("not counted: {}\n", counts.problem);
    return text;
  }

  std::string summary(const nlohmann::json& document, const SelfTest& test, const NodeReport& report) const {
    std::string text = fmt::format("{} × {}, {}\n", document["gpus"].size(),
                                   document["gpus"][0]["name"].get<std::string>(), document["date"].get<std::string>());
    text += fmt::format("self-test: {}\n\n", test.is_there ? test.passed ? "passed" : "FAILED" : "not built");
    text += report.measured.results.empty() ? std::string{"kernels: not measured on a GPU\n"}
                                            : text_of(report.measured.results) + "\n";
    for (const std::string& s : report.measured.skipped) text += fmt::format("not measured: {}\n", s);
    for (const std::string& s : report.refused) text += s + "\n";
    text += text_of(kernel_shares(report.measured.results)) + "\n";
    text += counts_text(report.counts);
    for (const std::string& s : report.steps.skipped) text += fmt::format("not measured: {}\n", s);
    text += fmt::format("steps measured: {}; laws of the runtime fitted to them and to single ops: {}\n\n",
                        report.steps.measured, report.parameters.fitted.size());
    text += table_of(report.plans).text("  ");
    if (report.predicted() == 0) text += "plans: not measured on a GPU as they were predicted\n";
    if (report.predicted() > 0)
      text += fmt::format("\nmean error {:.1f} % over {} of {} plans, worst {:.1f} %; of ops {:.1f} % (median)\n",
                          100 * report.mean_abs_error(), report.predicted(), report.plans.size() + report.plans_left,
                          100 * report.worst_abs_error(), 100 * report.op_error());
    if (report.predicted() < report.ran())
      text += fmt::format("the ranks of {} more shared GPUs, which the prediction gives one each (`shared`)\n",
                          report.ran() - report.predicted());
    text += fmt::format("peak memory is exact on {} of {} plans\n", report.exact_peaks(), report.ran());
    if (report.measured.left + report.steps.left + report.plans_left > 0)
      text +=
          fmt::format("no time was left for {} benches, {} steps and {} plans: the same command goes on with them\n",
                      report.measured.left, report.steps.left, report.plans_left);
    return text + fmt::format("written to {}\n", options_.folder);
  }

  NodeReportOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_node_report() { return std::make_unique<ReportNode>(); }

}  // namespace orrery
