// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/picture.hpp"
#include "sim/app/report.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/wiring.hpp"
#include "sim/machine/rank_order.hpp"
#include "sim/plan/work.hpp"

namespace orrery {
namespace {

class PlanCommand final : public Command {
 public:
  std::string_view name() const override { return "plan"; }
  std::string_view summary() const override { return "print the ops that a scenario is lowered to"; }
  std::string_view arguments() const override { return "[SCENARIO]"; }
  Arity arity() const override { return {0, 1}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = scenario_.flags();
    all.push_back({"--show", "FORM",
                   "text, dot, summary or schedule, a picture over time, as without FORM; default text",
                   [this](const std::string& v) { form_ = checked(v); }, "schedule"});
    all.push_back({"--dot", "", "the same as --show dot", [this](const std::string&) { form_ = "dot"; }});
    all.push_back({"--max-ops", "N", "most ops to print of each plan; default 2000",
                   [this](const std::string& v) { max_ops_ = integer_option("--max-ops", v, 0); }});
    all.push_back({"--costs", "F,B,W[,HOP]", "schedule: relative durations of the passes instead of those of the ops",
                   [this](const std::string& v) { picture_.costs = parse_costs(v); }});
    all.push_back({"--width", "N",
                   "schedule: columns of the picture; default 120, of a pipeline as many up to 240 as its numbers need",
                   [this](const std::string& v) {
                     picture_.width = static_cast<int>(std::min<std::int64_t>(integer_option("--width", v, 40), 2000));
                   }});
    return all;
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Scenario scenario = scenario_.load(arguments.empty() ? "" : arguments[0], context);
    if (picture_.costs && form_ != "schedule") throw UserError{"--costs belong to a picture", "add --show schedule"};
    if (form_ == "schedule" && !context.json) {
      picture_.colours = context.console.has_colour();
      context.console.out(picture(scenario, context.wiring, picture_));
      return exit_code::kOk;
    }
    const bool on_host = scenario.cluster.device == "host";
    const std::unique_ptr<Program> program =
        make_program(scenario, context.wiring, {.workspaces = on_host ? &context.wiring.workspaces() : nullptr});
    if (context.json) {
      nlohmann::json plans = nlohmann::json::array();
      for (const Plan& plan : program->plans()) {
        plans.push_back(summary_json(plan));
        for (const AxisSpread& a : spread_of_axes(scenario.cluster, plan.mesh))
          plans.back()["spread"][a.axis] = {{"ranks", a.ranks}, {"per_node", a.per_node}, {"nodes", a.nodes}};
      }
      context.console.out(nlohmann::json{{"schema_version", kSchemaVersion}, {"plans", plans}}.dump(2) + "\n");
      return exit_code::kOk;
    }
    for (const Plan& plan : program->plans()) {
      if (form_ != "dot" && plan.mesh.size() > 1)
        context.console.out(fmt::format("ranks: {}\n", to_text(spread_of_axes(scenario.cluster, plan.mesh))));
      context.console.out(shown(plan));
    }
    return exit_code::kOk;
  }

 private:
  static std::string checked(const std::string& form) {
    const std::vector<std::string> known{"text", "dot", "summary", "schedule"};
    for (const std::string& k : known)
      if (k == form) return form;
    throw unknown_name("form", form, known);
  }

  static nlohmann::json summary_json(const Plan& plan) {
    std::map<std::string, std::int64_t> kinds;
    Flops flops;
    for (const Op& op : plan.ops) {
      ++kinds[std::string{kind_name(plan.work(op))}];
      flops += amount(plan.work(op)).flops;
    }
    return {{"name", plan.name},
            {"ops", plan.ops.size()},
            {"tensors", plan.tensors.size()},
            {"ranks", plan.mesh.size()},
            {"rank_classes", plan.classes.size()},
            {"kinds", kinds},
            {"flops", flops.base()},
            {"model_flops", plan.purpose.model_flops.base()},
            {"tokens", plan.purpose.tokens}};
  }

  std::string shown(const Plan& plan) const {
    const auto most = static_cast<std::size_t>(max_ops_);
    if (form_ == "dot") return print_dot(plan, most);
    if (form_ == "text") return print_text(plan, most);
    const nlohmann::json s = summary_json(plan);
    std::string text = fmt::format("plan {}: {} ops, {} tensors, {}\n", plan.name, plan.ops.size(), plan.tensors.size(),
                                   to_text(Flops{s["flops"].get<double>()}));
    for (const auto& [kind, count] : s["kinds"].items())
      text += fmt::format("  {:<24} {:>6}\n", kind, count.get<std::int64_t>());
    return text;
  }

  ScenarioFlags scenario_;
  std::string form_ = "text";
  std::int64_t max_ops_ = 2000;
  PictureOptions picture_;
};

}  // namespace

std::unique_ptr<Command> make_plan() { return std::make_unique<PlanCommand>(); }

}  // namespace orrery
