// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/app/calibration.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/launch.hpp"
#include "sim/app/link_calibration.hpp"
#include "sim/app/node_report.hpp"
#include "sim/app/report.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/table_calibration.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

class Calibrate final : public Command {
 public:
  std::string_view name() const override { return "calibrate"; }
  std::string_view summary() const override {
    return "measure this computer and fit its parameters, or fit those of a GPU to published tables";
  }
  std::string_view arguments() const override { return "[--from TABLE.csv…]"; }
  Arity arity() const override { return {0, 1000}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all{
        {"-o", "FILE", "parameter file to write; default: where predictions look for it. Links: a folder",
         [this](const std::string& v) { path_ = v; }},
        {"--quick", "", "fewer points: about 20 s instead of a minute; of a GPU a minute instead of six",
         [this](const std::string&) { options_.quick = true; }},
        {"--seed", "N", "of the sizes that are measured",
         [this](const std::string& v) { options_.seed = integer_option("--seed", v, 0); }},
        {"--from", "",
         "fit tables that are the arguments: of kernels, for --device, or of collectives, for their links",
         [this](const std::string&) { from_tables_ = true; }},
        {"--device", "NAME", "cuda, to measure the GPU of this computer; with --from, the GPU whose laws are fitted",
         [this](const std::string& v) { device_ = v; }},
        {"--budget", "TIME", "time to measure for, such as 60 s",
         [this](const std::string& v) { options_.budget = time_option("--budget", v); }}};
    for (Flag& f : peers_.flags("measures its GPU, collectives with all, and writes")) all.push_back(std::move(f));
    return all;
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    if (peers_.given() && (from_tables_ || device_ != "cuda"))
      throw UserError{"option --peers is for the device cuda", "add --device cuda"};
    peers_.check();
    if (from_tables_) return device_.empty() ? fit_tables(arguments, path_, context) : run_tables(context, arguments);
    if (device_ == "cuda" && arguments.empty()) return run_gpu(context);
    if (!arguments.empty() || !device_.empty())
      throw UserError{"tables and --device are for fits to tables",
                      "add --from, leave them out to measure this computer, or give --device cuda to measure its GPU"};
    const std::string path = path_.empty() ? context.wiring.locations().host_parameters() : path_;
    const auto start = std::chrono::steady_clock::now();
    const Calibration c = calibrate_to(path, options_, context);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    context.console.out(context.json ? document(c, path, seconds).dump(2) + "\n" : text(c, path, seconds));
    return exit_code::kOk;
  }

 private:
  /// Measures, fits and writes parameters where predictions look for them. What was measured lies beside them; while
  /// the measurement is under way in a file from which one that was stopped goes on. When all is measured, clock and
  /// power are watched.
  int run_gpu(AppContext& context) {
    constexpr Seconds kWhole{360}, kQuick{60}, kClocks{60}, kQuickClocks{3};
    constexpr double kShareOfBenches = 0.6;  // of the time; steps get what is left
    const std::shared_ptr<GpuDriver> driver = context.wiring.gpus();
    const GpuInfo info = driver->info(0);
    const NodeCluster node = cluster_of(info.name, context.wiring.locations());
    const std::string path =
        path_.empty() ? fmt::format("{}/{}.yaml", context.wiring.locations().own_parameters(), node.device) : path_;
    if (const auto folder = std::filesystem::path{path}.parent_path(); !folder.empty())
      std::filesystem::create_directories(folder);
    const std::string lines = std::filesystem::path{path}.replace_extension("measurements.tsv").string();
    const std::string of_steps = std::filesystem::path{path}.replace_extension("steps.tsv").string();
    const Seconds budget = options_.budget > Seconds{0} ? options_.budget : options_.quick ? kQuick : kWhole;
    const Seconds watching = std::min(options_.quick ? kQuickClocks : kClocks, budget / 6);
    const std::shared_ptr<Peers> peers = peers_.meet(context.environment);
    const auto start = std::chrono::steady_clock::now();
    const auto is_over = [&] {
      return Seconds{std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()} >= budget;
    };
    const GpuMeasurements m = calibrate_gpu(driver,
                                            {.quick = options_.quick,
                                             .seed = options_.seed,
                                             .resume = lines + ".part",
                                             .budget = (budget - watching) * kShareOfBenches,
                                             .peers = peers},
                                            context);
    if (peers && peers->process() != 0) return exit_code::kOk;
    std::vector<ClockSample> clocks;
    if (m.left == 0)
      clocks =
          watch_clocks(driver, watching, std::filesystem::path{path}.replace_extension("clocks.tsv").string(), context);
    const GpuSteps steps = measure_gpu_steps(draw_gpu_steps(options_.quick, static_cast<std::uint64_t>(options_.seed),
                                                            node.cluster, context.wiring.locations()),
                                             info.memory_bytes, of_steps + ".part", is_over, context);
    const TableCalibration c = fit_node(m.results, steps, node.device, info, context);
    const auto lock = context.interrupt.writing();
    write_table_calibration(c, path);
    if (m.left + steps.left == 0) {
      std::filesystem::rename(lines + ".part", lines);
      if (std::filesystem::exists(of_steps + ".part")) std::filesystem::rename(of_steps + ".part", of_steps);
    }
    context.console.out(context.json
                            ? document(c, path).dump(2) + "\n"
                            : text_of(m.results) + text_of(clocks) + "\n" + text(c, path) + what_is_left(m, steps));
    return exit_code::kOk;
  }

  static std::string what_is_left(const GpuMeasurements& m, const GpuSteps& steps) {
    std::string text;
    for (const auto* skipped : {&m.skipped, &steps.skipped})
      for (const std::string& s : *skipped) text += fmt::format("not measured: {}\n", s);
    if (m.left + steps.left > 0)
      text += fmt::format("{} benches and {} steps left out, there was no time: the same command goes on with them\n",
                          m.left, steps.left);
    return text;
  }

  int run_tables(AppContext& context, const std::vector<std::string>& tables) {
    if (tables.empty() || path_.empty())
      throw UserError{"a fit to tables of kernels needs tables, --device and -o",
                      "such as `orrery calibrate --from kernels.csv --device h100_sxm -o h100_sxm.yaml`"};
    const TableCalibration c = calibrate_from_tables(tables, device_, context);
    const auto lock = context.interrupt.writing();
    write_table_calibration(c, path_);
    context.console.out(context.json ? document(c, path_).dump(2) + "\n" : text(c, path_));
    return exit_code::kOk;
  }

  static std::string text(const TableCalibration& c, const std::string& path) {
    const auto pair = [](double middle, double tail) {
      return fmt::format("{:.1f} %, {:.1f} %", 100 * middle, 100 * tail);
    };
    Table table{{{"law"},
                 {"points", Align::Right},
                 {"median, p90 of the fit", Align::Right},
                 {"of a random fifth left out", Align::Right},
                 {"of the largest, left out", Align::Right},
                 {"harness"}}};
    for (const auto& [name, law] : fitted_laws(c)) {
      const GpuLaw& l = *law;
      table.add({name, std::to_string(l.points), pair(l.median_error, l.p90_error),
                 pair(l.random_median_error, l.random_p90_error), pair(l.largest_median_error, l.largest_p90_error),
                 l.harness});
    }
    return fmt::format("fitted {} laws of {} to {} rows\n{}{}written to {}\n", c.fitted.size(),
                       c.parameters.provenance.machine, c.rows, table.text("  "), kernels_text(c), path);
  }

  /// Laws of products or of published kernels.
  static std::map<std::string, const GpuLaw*> fitted_laws(const TableCalibration& c) {
    const GpuParameters& p = c.parameters;
    std::map<std::string, const GpuLaw*> laws;
    for (const std::string& name : c.fitted)
      if (const auto& of = c.of_runtime ? p.runtime->products : p.laws; of.contains(name)) laws[name] = &of.at(name);
    return laws;
  }

  /// Of the runtime's own kernels; empty where none were measured.
  static std::string kernels_text(const TableCalibration& c) {
    if (!c.of_runtime || c.fitted.empty()) return {};
    Table table{
        {{"kernel"}, {"points", Align::Right}, {"median error", Align::Right}, {"p90", Align::Right}, {"seconds per"}}};
    for (const auto& [name, law] : c.parameters.runtime->kernels) {
      std::string seconds;
      for (const auto& [feature, per] : law.seconds) seconds += fmt::format(" {} {:.3g}", feature, per);
      table.add({name, std::to_string(law.points), fmt::format("{:.1f} %", 100 * law.median_error),
                 fmt::format("{:.1f} %", 100 * law.p90_error), seconds.empty() ? "" : seconds.substr(1)});
    }
    return "\n" + table.text("  ");
  }

  static nlohmann::json document(const TableCalibration& c, const std::string& path) {
    nlohmann::json laws = nlohmann::json::array();
    for (const auto& [name, law] : fitted_laws(c)) {
      const GpuLaw& l = *law;
      laws.push_back({{"name", name},
                      {"points", l.points},
                      {"harness", l.harness},
                      {"median_error", l.median_error},
                      {"p90_error", l.p90_error},
                      {"random_median_error", l.random_median_error},
                      {"random_p90_error", l.random_p90_error},
                      {"largest_median_error", l.largest_median_error},
                      {"largest_p90_error", l.largest_p90_error}});
    }
    return {{"schema_version", kSchemaVersion},
            {"machine", c.parameters.provenance.machine},
            {"parameters", path},
            {"rows", c.rows},
            {"laws", laws}};
  }

  static std::string text(const Calibration& c, const std::string& path, double seconds) {
    const HostParameters& p = c.parameters;
    std::string out = fmt::format("calibrated {} in {:.0f} s\n", p.provenance.machine, seconds);
    out += fmt::format(
        "  products     {} on one core\n  memory       {} on all cores\n  drift        {:.1f} % while measuring, "
        "{:.0f} % of samples "
        "disturbed\n\n",
        to_text(p.peak), to_text(p.memory_bandwidth), 100 * c.drift, 100 * c.disturbed);
    Table table{{{"law"}, {"points", Align::Right}, {"median error", Align::Right}, {"worst", Align::Right}}};
    for (const auto& [name, law] : p.laws)
      table.add({name, std::to_string(law.points), fmt::format("{:.1f} %", 100 * law.median_error),
                 fmt::format("{:.1f} %", 100 * law.worst_error)});
    out += table.text("  ");
    if (!c.steps.empty())
      out += fmt::format("\n{} whole steps left out of the fit: mean error {:.1f} %\n", c.steps.size(),
                         100 * mean_error(c));
    return out + fmt::format("written to {}\n", path);
  }

  static nlohmann::json document(const Calibration& c, const std::string& path, double seconds) {
    nlohmann::json laws = nlohmann::json::array();
    for (const auto& [name, law] : c.parameters.laws)
      laws.push_back({{"name", name},
                      {"points", law.points},
                      {"median_error", law.median_error},
                      {"worst_error", law.worst_error},
                      {"deviation", law.deviation},
                      {"bias", law.bias}});
    nlohmann::json steps = nlohmann::json::array();
    for (const StepCheck& s : c.steps)
      steps.push_back({{"name", s.name}, {"measured", s.measured}, {"predicted", s.predicted}});
    return {{"schema_version", kSchemaVersion},
            {"machine", c.parameters.provenance.machine},
            {"parameters", path},
            {"wall_seconds", seconds},
            {"drift", c.drift},
            {"disturbed", c.disturbed},
            {"laws", laws},
            {"steps", steps},
            {"warnings", c.warnings}};
  }

  static double mean_error(const Calibration& c) {
    double sum = 0;
    for (const StepCheck& s : c.steps) sum += std::abs(s.predicted / s.measured - 1);
    return sum / double(c.steps.size());
  }

  CalibrateOptions options_;
  PeerFlags peers_;
  std::string path_, device_;
  bool from_tables_ = false;
};

}  // namespace

std::unique_ptr<Command> make_calibrate() { return std::make_unique<Calibrate>(); }

}  // namespace orrery
