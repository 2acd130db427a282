// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/table.hpp"
#include "sim/program/campaign.hpp"

namespace orrery {
namespace {

constexpr double kDay = 86400, kHour = 3600;

class CampaignCommand final : public Command {
 public:
  std::string_view name() const override { return "campaign"; }
  std::string_view summary() const override {
    return "days, device hours, money and energy of training on so many tokens, failures included";
  }
  std::string_view arguments() const override { return "[SCENARIO]"; }
  Arity arity() const override { return {0, 1}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = scenario_.flags();
    const auto number = [](const char* flag, double& out) {
      return [flag, &out](const std::string& v) { out = positive_option(flag, v); };
    };
    const auto time = [](const char* flag, double& out) {
      return [flag, &out](const std::string& v) { out = time_option(flag, v).base(); };
    };
    all.insert(all.end(),
               {
                   {"--tokens", "N", "tokens to train on: 3e12", number("--tokens", in_.tokens)},
                   {"--mtbf", "TIME", "between failures of one device: '50000 h'; left out: none fails",
                    time("--mtbf", in_.mtbf)},
                   {"--checkpoint", "TIME", "that training stands still for a checkpoint",
                    time("--checkpoint", in_.checkpoint)},
                   {"--restart", "TIME", "from a failure until training goes on; left out: at once",
                    time("--restart", in_.restart)},
                   {"--interval", "TIME", "of work between checkpoints; left out: what costs the least",
                    [this](const std::string& v) { in_.interval = time_option("--interval", v).base(); }},
                   {"--price", "N", "of a device for an hour, in any currency", number("--price", in_.price)},
                   {"--power", "WATT", "that a device takes, with its part of all else", number("--power", in_.watts)},
               });
    return all;
  }
  std::string details() const override {
    return "The step is predicted as `orrery simulate` does. Failures of devices are independent; whichever fails, "
           "all\n"
           "work since the last checkpoint is done again. The best interval is that of Young and Daly.\n";
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Scenario scenario = scenario_.load(arguments.empty() ? "" : arguments[0], context);
    check(scenario);
    const Machine machine = context.wiring.machine(scenario.options, scenario.cluster);
    if (!machine.doubt.empty()) context.console.warn(machine.doubt);
    const Simulation s = simulate_scenario(scenario, machine, context.wiring, {}, [&](std::size_t) {
      context.interrupt.check();
      context.console.progress("simulating", 0);
    });
    context.console.end_progress();
    const Report report = make_report({scenario, *s.program, s.recording, &machine});
    in_.step = report.step, in_.tokens_per_step = report.tokens_per_step, in_.devices = report.ranks;
    const TrainingCampaign c = campaign(in_);
    context.console.out(context.json ? document(report, c).dump(2) + "\n" : text(report, c, context.console));
    return exit_code::kOk;
  }

 private:
  void check(const Scenario& scenario) const {
    if (!scenario.options.workload.train)
      throw UserError{fmt::format("the workload of {} does not train", in_quotes(scenario.name)),
                      "give a scenario with `workload: {train: …}`"};
    if (in_.tokens == 0) throw UserError{"how many tokens is missing", "give --tokens, such as --tokens 3e12"};
    const bool checkpoints = in_.mtbf > 0 || in_.interval.has_value();
    if (checkpoints && in_.checkpoint == 0)
      throw UserError{"how long a checkpoint takes is missing", "give --checkpoint, such as --checkpoint '60 s'"};
    if (!checkpoints && in_.checkpoint > 0)
      throw UserError{"how often there is a checkpoint is missing", "give --mtbf or --interval"};
    if (in_.mtbf == 0 && in_.restart > 0) throw UserError{"nothing restarts where nothing fails", "give --mtbf"};
  }

  /// The campaign with another time of a step: work and all else are in proportion to it.
  TrainingCampaign with_step(double seconds) const {
    CampaignInputs in = in_;
    in.step = seconds;
    return campaign(in);
  }

  std::string text(const Report& r, const TrainingCampaign& c, const Console& console) const {
    Table table{{{"of the campaign"}, {"", Align::Right}, {""}}};
    const auto add = [&](const char* name, std::string value, std::string note = {}) {
      table.add({name, std::move(value), std::move(note)});
    };
    add("steps", fmt::format("{:.0f}", c.steps),
        fmt::format("of {} and {:.0f} tokens", to_text(Seconds{r.step}), r.tokens_per_step));
    add("days", fmt::format("{:.2f}", c.wall / kDay),
        fmt::format("{:.2f} to {:.2f} by the interval of the step", with_step(r.low).wall / kDay,
                    with_step(r.high).wall / kDay));
    if (c.interval > 0) {
      add("checkpoint every", to_text(Seconds{c.interval}), in_.interval ? "of work, as given" : "of work, the best");
      add("failures", fmt::format("{:.1f}", c.failures),
          in_.mtbf > 0 ? fmt::format("one in {:.1f} h", in_.mtbf / double(in_.devices) / kHour) : "none");
      add("lost", fmt::format("{:.2f} %", 100 * c.lost()), "checkpoints, restarts, and what is done again");
    }
    add("device hours", fmt::format("{:.0f}", c.device_hours), fmt::format("of {} devices", in_.devices));
    if (in_.price > 0) add("money", fmt::format("{:.0f}", c.money), fmt::format("{:g} a device hour", in_.price));
    if (in_.watts > 0)
      add("energy", fmt::format("{:.1f} MWh", c.joules / (kHour * 1e6)), fmt::format("{:g} W a device", in_.watts));
    std::string out = console.bold(fmt::format("{}: {:.4g} tokens on {}", r.scenario, in_.tokens, r.machine)) + "\n" +
                      table.text("  ");
    out += fmt::format("\n{} tokens/s, MFU {:.1f} %\n", rate_text(r.tokens_per_second), 100 * r.mfu);
    if (!all_fits(r)) out += console.bad("does not fit into memory: see `orrery simulate`") + "\n";
    return out;
  }

  nlohmann::json document(const Report& r, const TrainingCampaign& c) const {
    return {{"schema_version", kSchemaVersion},
            {"scenario", r.scenario},
            {"tokens", in_.tokens},
            {"steps", c.steps},
            {"step_time", {{"seconds", r.step}, {"low", r.low}, {"high", r.high}}},
            {"tokens_per_second", r.tokens_per_second},
            {"mfu", r.mfu},
            {"fits", all_fits(r)},
            {"devices", in_.devices},
            {"work_seconds", c.work},
            {"wall_seconds", c.wall},
            {"wall_seconds_low", with_step(r.low).wall},
            {"wall_seconds_high", with_step(r.high).wall},
            {"checkpoint_interval_seconds", c.interval},
            {"failures", c.failures},
            {"lost", c.lost()},
            {"device_hours", c.device_hours},
            {"money", c.money},
            {"energy_joules", c.joules}};
  }

  ScenarioFlags scenario_;
  CampaignInputs in_;
};

}  // namespace

std::unique_ptr<Command> make_campaign() { return std::make_unique<CampaignCommand>(); }

}  // namespace orrery
