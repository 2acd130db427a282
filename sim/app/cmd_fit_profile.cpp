// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/app/accuracy/deviation_fit.hpp"
#include "sim/app/accuracy/inference_rows.hpp"
#include "sim/app/accuracy/memory_fit.hpp"
#include "sim/app/accuracy/serving_fit.hpp"
#include "sim/app/accuracy/training_rows.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/app/scenario_flags.hpp"

namespace orrery {
namespace {

/// What a profile says that no fit changes: what is known of the program, and its memory.
SoftwareProfile without_numbers(const std::string& name) {
  SoftwareProfile start;
  start.name = name;
  for (const SoftwareProfile& p : software_profiles()) {
    if (p.name != name) continue;
    start.summary = p.summary, start.provenance = p.provenance;
    start.memory_fixed = p.memory_fixed, start.memory_per_parameter = p.memory_per_parameter;
    start.memory_per_state = p.memory_per_state, start.memory_fragments = p.memory_fragments;
    start.memory_deviation = p.memory_deviation;
    start.starts = p.starts, start.graph_rows = p.graph_rows, start.conversion = p.conversion, start.fused = p.fused,
    start.kernels = p.kernels, start.devices = p.devices;
  }
  return start;
}

/// Where a fit starts, and what pulls where rows tell nothing: links and networks give what NCCL gets from them.
SoftwareProfile start_of_steps(const std::string& name) {
  SoftwareProfile p = without_numbers(name);
  p.products = p.attention = p.streams = 0.8;
  p.launch = 1.5;
  return p;
}
SoftwareProfile start_of_servers(const std::string& name) {
  SoftwareProfile p = without_numbers(name);
  p.host_step = Seconds{5e-4}, p.host_sequence = Seconds{5e-6}, p.host_token = Seconds{1e-5};
  p.host_request = Seconds{1e-2};
  return p;
}

class FitProfile final : public Command {
 public:
  std::string_view name() const override { return "fit-profile"; }
  std::string_view summary() const override {
    return "fit the parameters of a software profile (`orrery list profiles`) to published steps";
  }
  std::string_view arguments() const override { return "PROFILE TABLE.csv…"; }
  Arity arity() const override { return {2, 1000}; }
  std::vector<Flag> flags() override {
    return {
        {"--memory", "", "fit what the software takes of the memory beside its tensors, to published peaks",
         [this](const std::string&) { memory_ = true; }},
        {"--deviations", "", "fit only how sure predictions with it are, from how far they are off on published rows",
         [this](const std::string&) { deviations_ = true; }},
        {"--experts", "", "fit the host's time per layer of experts in place of its time per launch",
         [this](const std::string&) { experts_ = true; }},
        {"--sequences", "", "fit the host's time per sequence that gets a token in place of its time per pass",
         [this](const std::string&) { sequences_ = true; }},
        {"--out", "FILE", "write the profile's parameter file", [this](const std::string& v) { out_ = v; }},
        {"--most", "N", "most rows of servers that are fitted; default 60",
         [this](const std::string& v) { most_ = static_cast<std::size_t>(integer_option("--most", v, 1)); }},
        {"--date", "DAY", "day to write into the file, such as 2026-01-31; default: unknown",
         [this](const std::string& v) { date_ = v; }}};
  }
  std::string details() const override {
    return "At most 30 % of the rows are fitted, chosen by a hash of their ids, and none of a few models, which are\n"
           "kept to judge the fit by.\n";
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    if (memory_) return run_memory(context, arguments);
    if (deviations_) return run_deviations(context, arguments);
    if (const auto fit = fit_servers(context, arguments)) return finish(context, *fit);
    std::vector<ProfileCase> cases;
    const std::vector<ProfileNumber>* numbers = &step_numbers();
    std::string files;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      const CsvTable table = read_csv(arguments[i]);
      const bool trains = table.column("iter_time_s") || table.column("benchmark");
      numbers = numbers_of(trains);
      std::vector<ProfileCase> more = trains ? training_cases(table, context.wiring, arguments[0])
                                             : inference_cases(table, context.wiring, arguments[0]);
      if (!more.empty()) files += (files.empty() ? "" : ", ") + stem(arguments[i]);
      std::move(more.begin(), more.end(), std::back_inserter(cases));
    }
    if (cases.empty())
      throw UserError{
          fmt::format("no row of these tables is of software with the profile {}", in_quotes(arguments[0]))};
    SoftwareProfile start = start_of_steps(arguments[0]);
    if (numbers == &pass_numbers()) start.host_step = Seconds{1e-4};
    if (numbers == &sequence_numbers()) start.host_sequence = Seconds{1e-5};
    ProfileFit fit = fit_profile(start, cases_of_steps(cases, *numbers));
    fit.profile.provenance.source = fmt::format("{} of {} rows of {}", fit.fitted, fit.rows, files);
    return finish(context, std::move(fit));
  }

 private:
  const std::vector<ProfileNumber>* numbers_of(bool trains) const {
    if (trains) return experts_ ? &expert_numbers() : &step_numbers();
    return sequences_ ? &sequence_numbers() : &pass_numbers();
  }

  /// Where the tables have rows of servers: a fit of them.
  std::optional<ProfileFit> fit_servers(AppContext& context, const std::vector<std::string>& arguments) const {
    std::vector<CsvTable> tables;
    std::string files;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      tables.push_back(read_csv(arguments[i]));
      files += (files.empty() ? "" : ", ") + stem(arguments[i]);
    }
    ProfileCases cases = served_cases(tables, context.wiring, arguments[0]);
    if (cases.rows.empty()) return {};
    cases.most = most_;
    ProfileFit fit = fit_profile(start_of_servers(arguments[0]), cases);
    fit.profile.provenance.source = fmt::format("{} of {} rows of {}", fit.fitted, fit.rows, files);
    return fit;
  }

  int finish(AppContext& context, ProfileFit fit) const {
    fit.profile.provenance = {.status = FitStatus::Fitted,
                              .machine = "published machines",
                              .date = date_,
                              .tool = "orrery fit-profile",
                              .source = fit.profile.provenance.source};
    save(context, fit.profile);
    context.console.out(context.json ? document(fit) : text(fit));
    return exit_code::kOk;
  }

  int run_memory(AppContext& context, const std::vector<std::string>& arguments) const {
    std::vector<MemoryCase> cases;
    std::vector<std::string> files;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      std::vector<MemoryCase> more = memory_cases(read_csv(arguments[i]), context.wiring, arguments[0]);
      if (!more.empty()) files.push_back(stem(arguments[i]));
      std::move(more.begin(), more.end(), std::back_inserter(cases));
    }
    if (std::none_of(cases.begin(), cases.end(), [](const MemoryCase& c) { return c.measured > 0; }))
      throw UserError{fmt::format("no row of these tables has a peak of memory and software with the profile {}",
                                  in_quotes(arguments[0]))};
    MemoryFit f = fit_memory(find_profile(arguments[0]), cases);
    std::string& source = f.profile.provenance.source;
    source = fmt::format("{}; memory: {} of {} rows of {}", source.substr(0, source.find("; memory")), f.fitted, f.rows,
                         fmt::join(files, ", "));
    save(context, f.profile);
    if (context.json) {
      context.console.out(nlohmann::json{{"schema_version", kSchemaVersion},
                                         {"profile", f.profile.name},
                                         {"rows", f.rows},
                                         {"fitted", f.fitted},
                                         {"held_out_models", f.held_out},
                                         {"ran", f.ran},
                                         {"refused", f.refused},
                                         {"memory_fixed", f.profile.memory_fixed.base()},
                                         {"memory_per_parameter", f.profile.memory_per_parameter},
                                         {"memory_per_state", f.profile.memory_per_state},
                                         {"memory_fragments", f.profile.memory_fragments},
                                         {"error_fitted", f.error_fitted},
                                         {"error_rest", f.error_rest},
                                         {"error_held_out", f.error_held_out}}
                              .dump(2) +
                          "\n");
      return exit_code::kOk;
    }
    context.console.out(fmt::format(
        "memory of {}: fitted on {} of {} rows\n  mean error {:.1f} % on them, {:.1f} % on the others, {:.1f} % on "
        "models held out ({})\n  {} fixed, {:.2f} B per parameter, {:.2f} B per updated one, {:.1f} % of what comes "
        "and goes\n  of {} steps without a published peak that ran, {} are said not to fit\n",
        f.profile.name, f.fitted, f.rows, 100 * f.error_fitted, 100 * f.error_rest, 100 * f.error_held_out,
        fmt::join(f.held_out, ", "), to_text(f.profile.memory_fixed), f.profile.memory_per_parameter,
        f.profile.memory_per_state, 100 * f.profile.memory_fragments, f.ran, f.refused));
    return exit_code::kOk;
  }

  int run_deviations(AppContext& context, const std::vector<std::string>& arguments) const {
    SoftwareProfile profile = find_profile(arguments[0]);
    std::vector<Miss> misses;
    std::vector<std::string> files;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      const CsvTable table = read_csv(arguments[i]);
      std::vector<Miss> more = misses_of(evaluate(table, kind_of(table), context.wiring, [](double) {}), profile.name);
      if (!more.empty()) files.push_back(stem(arguments[i]));
      std::move(more.begin(), more.end(), std::back_inserter(misses));
    }
    const std::vector<ToldDeviation> told = tell_deviations(std::move(misses));
    if (told.empty())
      throw UserError{
          fmt::format("too few rows of these tables are of software with the profile {}", in_quotes(arguments[0]))};
    set_deviations(profile, told);
    std::vector<std::string> counts;
    for (const ToldDeviation& t : told) counts.push_back(fmt::format("{} {} of {}", t.forecast, t.told, t.rows));
    profile.deviations_from = fmt::format("{}, rows of {}", fmt::join(counts, ", "), fmt::join(files, ", "));
    save(context, profile);
    nlohmann::json all = nlohmann::json::object();
    std::string text = fmt::format("deviations of {}, told by a third of the rows\n", profile.name);
    for (const ToldDeviation& t : told) {
      all[t.forecast] = {{"rows", t.rows}, {"told", t.told}, {"deviation", t.deviation}};
      text += fmt::format("  {:<18} {:>5.1f} %, {} of {} rows\n", t.forecast, 100 * t.deviation, t.told, t.rows);
    }
    const nlohmann::json document = {
        {"schema_version", kSchemaVersion}, {"profile", profile.name}, {"deviations", std::move(all)}};
    context.console.out(context.json ? document.dump(2) + "\n" : text);
    return exit_code::kOk;
  }

  /// Where that is asked for.
  void save(AppContext& context, const SoftwareProfile& profile) const {
    if (out_.empty()) return;
    const auto lock = context.interrupt.writing();
    write_file_atomically(out_, to_text(profile));
  }

  static std::string stem(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    return name.substr(0, name.rfind('.'));
  }

  static std::string document(const ProfileFit& f) {
    return nlohmann::json{{"schema_version", kSchemaVersion},
                          {"profile", f.profile.name},
                          {"rows", f.rows},
                          {"fitted", f.fitted},
                          {"held_out_models", f.held_out},
                          {"error_fitted", f.error_fitted},
                          {"error_rest", f.error_rest},
                          {"error_held_out", f.error_held_out}}
               .dump(2) +
           "\n";
  }

  static std::string text(const ProfileFit& f) {
    return fmt::format(
        "{}: fitted on {} of {} rows\n  mean error {:.1f} % on them, {:.1f} % on the others, {:.1f} % on "
        "models held out ({})\n{}",
        f.profile.name, f.fitted, f.rows, 100 * f.error_fitted, 100 * f.error_rest, 100 * f.error_held_out,
        fmt::join(f.held_out, ", "), to_text(f.profile));
  }

  std::size_t most_ = 60;
  std::string out_, date_ = "unknown";
  bool memory_ = false, deviations_ = false, experts_ = false, sequences_ = false;
};

}  // namespace

std::unique_ptr<Command> make_fit_profile() { return std::make_unique<FitProfile>(); }

}  // namespace orrery
