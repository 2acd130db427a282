// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "calibrate/suites.hpp"
#include "hw_models/parameters.hpp"
#include "hw_models/software_profile.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/table.hpp"
#include "sim/model/load.hpp"
#include "sim/model/print.hpp"
#include "sim/program/cluster/cluster_scheduler.hpp"
#include "sim/program/serving/scheduler.hpp"

namespace orrery {
namespace {

using Rows = nlohmann::json;  // a list of {name, summary, …}

Rows strategy_rows(const Locations&) {
  Rows rows = Rows::array();
  for (const StrategyEntry& s : strategies()) {
    Rows options = Rows::array();
    for (const OptionInfo& o : s.options())
      options.push_back({{"name", o.path}, {"type", o.type}, {"default", o.default_value}, {"summary", o.summary}});
    rows.push_back({{"name", s.name}, {"summary", s.summary}, {"options", options}});
  }
  return rows;
}

Rows model_rows(const Locations& locations) {
  Rows rows = Rows::array();
  for (const std::string& name : locations.model_names()) {
    const Model m = load_model(locations.find_model(name));
    const std::int64_t all = m.parameter_count(), active = m.active_parameter_count();
    std::string summary = fmt::format("{}, {} parameters", m.family, count_text(all));
    if (active != all) summary += fmt::format(", {} of them work on a token", count_text(active));
    rows.push_back({{"name", name},
                    {"summary", summary},
                    {"family", m.family},
                    {"parameters", all},
                    {"active_parameters", active}});
  }
  return rows;
}

Rows cluster_rows(const Locations& locations) {
  Rows rows = Rows::array();
  for (const std::string& name : locations.cluster_names()) {
    const Cluster c = load_cluster(locations.find_cluster(name));
    rows.push_back({{"name", name},
                    {"summary", c.summary},
                    {"device", c.device},
                    {"nodes", c.num_nodes()},
                    {"devices_per_node", c.devices_per_node},
                    {"ranks", c.num_ranks()}});
  }
  return rows;
}

Rows device_rows(const Locations& locations) {
  Rows rows = Rows::array();
  for (const std::string& name : device_names(locations.parameter_folders())) {
    const Provenance p = find_device(name, locations.parameter_folders())->provenance();
    const bool fitted = p.status == FitStatus::Fitted;
    rows.push_back({{"name", name},
                    {"summary", fmt::format("{}, {}", p.machine, fitted ? "measured " + p.date : "from data sheets")},
                    {"machine", p.machine},
                    {"fitted", fitted},
                    {"date", p.date}});
  }
  return rows;
}

Rows profile_rows(const Locations&) {
  Rows rows = Rows::array();
  for (const SoftwareProfile& p : software_profiles())
    rows.push_back({{"name", p.name}, {"summary", p.summary}, {"date", p.provenance.date}});
  return rows;
}

Rows scenario_rows(const Locations& locations) {
  Rows rows = Rows::array();
  for (const std::string& name : locations.scenario_names()) {
    const Node document = read_yaml(locations.find_scenario(name));
    const Node* summary = document.find("summary");
    rows.push_back({{"name", name}, {"summary", summary == nullptr ? "" : summary->scalar}});
  }
  return rows;
}

Rows benchmark_rows(const Locations&) {
  Rows rows = Rows::array();
  for (const Suite& s : suites()) rows.push_back({{"name", s.name}, {"summary", s.summary}, {"points", s.points}});
  return rows;
}

Rows scheduler_rows(const Locations&) {
  Rows rows = Rows::array();
  for (const SchedulerRules& s : schedulers()) rows.push_back({{"name", s.name}, {"summary", s.summary}});
  return rows;
}

Rows cluster_policy_rows(const Locations&) {
  Rows rows = Rows::array();
  for (const ClusterPolicy& p : cluster_policies()) rows.push_back({{"name", p.name}, {"summary", p.summary}});
  return rows;
}

struct Kind {
  std::string_view name;
  Rows (*rows)(const Locations&);
};
constexpr Kind kKinds[] = {
    {"strategies", strategy_rows},  {"models", model_rows},         {"clusters", cluster_rows},
    {"devices", device_rows},       {"profiles", profile_rows},     {"scenarios", scenario_rows},
    {"benchmarks", benchmark_rows}, {"schedulers", scheduler_rows}, {"cluster-schedulers", cluster_policy_rows}};

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const Kind& k : kKinds) names.emplace_back(k.name);
  return names;
}

class List final : public Command {
 public:
  std::string_view name() const override { return "list"; }
  std::string_view summary() const override {
    return "strategies, models, clusters, devices, profiles, scenarios, benchmarks, schedulers or cluster-schedulers";
  }
  std::string_view arguments() const override { return "KIND"; }
  Arity arity() const override { return {1, 1}; }
  std::vector<std::string> choices() const override { return kind_names(); }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Rows rows = rows_of(arguments[0], context.wiring.locations());
    if (context.json) {
      context.console.out(rows.dump(2) + "\n");
      return exit_code::kOk;
    }
    context.console.out(text_of(rows));
    return exit_code::kOk;
  }

 private:
  static std::string text_of(const Rows& rows) {
    Table table{{{"name"}, {"summary", Align::Left, Wrap::Yes}}};
    for (const auto& row : rows) table.add({row["name"].get<std::string>(), row["summary"].get<std::string>()});
    const bool has_options = !rows.empty() && rows.front().contains("options");
    return table.text() + (has_options ? "\n`orrery config explain strategy.NAME` tells the options of one.\n" : "");
  }

  static Rows rows_of(const std::string& kind, const Locations& locations) {
    for (const Kind& k : kKinds)
      if (k.name == kind) return k.rows(locations);
    throw unknown_name("kind", kind, kind_names());
  }
};

}  // namespace

std::unique_ptr<Command> make_list() { return std::make_unique<List>(); }

}  // namespace orrery
