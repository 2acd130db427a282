// SPDX-License-Identifier: Apache-2.0
#include "sim/app/resimulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "hw_models/scales.hpp"
#include "sim/app/session.hpp"

namespace orrery {
namespace {

class ScenarioResimulator final : public gui::Resimulator {
 public:
  ScenarioResimulator(const Wiring& wiring, const Environment& environment)
      : wiring_{wiring}, environment_{environment} {}

  std::vector<std::string> scenarios() const override { return wiring_.locations().scenario_names(); }

  std::vector<gui::Knob> knobs(const std::string& name) const override {
    const Scenario scenario = load({name, {}, {}});
    std::vector<gui::Knob> out;
    for (const KnobInfo& k : orrery::knobs())
      out.push_back({gui::Knob::Kind::Factor, std::string{k.name}, std::string{k.summary}, "1", {}});
    const std::vector<OptionInfo> known = options_of(scenario);
    const std::size_t first = out.size();
    for (const char* section : {"workload", "strategy"})
      if (const Node* node = scenario.document.find(section)) add_written(*node, section, known, out);
    add_left_out(resolved_scenario(scenario), known, first, out);
    return out;
  }

  /// Plans follow from scenario and settings: while only factors change, the same steps are timed again.
  Trace simulate(const gui::WhatIfState& state, const std::function<void()>& check) override {
    const bool is_known =
        prepared_ != nullptr && prepared_->scenario_name == state.scenario && prepared_->settings == state.settings;
    if (!is_known) prepared_ = prepare(state, check);
    const Scenario& scenario = *prepared_->scenario;
    Machine machine = wiring_.machine(scenario.options, scenario.cluster);
    for (const auto& [parameter, factor] : state.factors) machine.cost->scale_parameter(parameter, factor);
    const auto runner = simulated(machine, wiring_, *prepared_->program, scenario, Logged::Memory);
    Recording recording = replay(*prepared_->program, prepared_->steps, *runner, [&](std::size_t) { check(); });
    recording.timeline.machine = machine.cost->machine();
    return {std::move(recording.timeline),
            prepared_->digests,
            {{"scenario", scenario.name}, {"devices_per_node", std::to_string(scenario.cluster.devices_per_node)}}};
  }

 private:
  struct Prepared {
    std::string scenario_name;
    std::map<std::string, std::string> settings;
    std::unique_ptr<const Scenario> scenario;  // the program refers to it
    std::unique_ptr<Program> program;
    std::vector<Step> steps;
    PlanDigests digests;
  };

  std::unique_ptr<Prepared> prepare(const gui::WhatIfState& state, const std::function<void()>& check) const {
    auto out = std::make_unique<Prepared>();
    out->scenario_name = state.scenario;
    out->settings = state.settings;
    out->scenario = std::make_unique<const Scenario>(load(state));
    const Machine machine = wiring_.machine(out->scenario->options, out->scenario->cluster);
    Simulation s = simulate_scenario(*out->scenario, machine, wiring_, 1, [&](std::size_t) { check(); });
    out->program = std::move(s.program);
    out->steps = std::move(s.recording.steps);
    out->digests = digests_of(*out->program);
    return out;
  }

  Scenario load(const gui::WhatIfState& state) const {
    std::vector<Override> overrides;
    for (const auto& [path, value] : state.settings) overrides.push_back({path + "=" + value, "--set"});
    const Locations& l = wiring_.locations();
    return load_scenario(l.find_scenario(state.scenario), l, environment_, overrides);
  }

  /// What can be said of a scenario's workload, its strategy and how it is simulated, by the paths of `--set`.
  static std::vector<OptionInfo> options_of(const Scenario& scenario) {
    const std::string workload = fmt::format("workload.{}.", scenario.workload_name());
    std::vector<OptionInfo> out;
    for (const OptionInfo& o : describe_options<ScenarioOptions>())
      if (o.path.starts_with(workload) || o.path == "launch" || o.path == "ranks" || o.path == "collectives" ||
          o.path == "network" || o.path.starts_with("algorithms."))
        out.push_back(o);
    const Node* strategy = scenario.document.find("strategy");
    // Options cannot be put behind a bare name.
    if (strategy == nullptr || strategy->items.empty() || strategy->items.front().kind != Node::Kind::Map) return out;
    for (OptionInfo o : find_strategy(scenario.strategy).options()) {
      o.path = fmt::format("strategy[0].{}.{}", scenario.strategy, o.path);
      out.push_back(std::move(o));
    }
    return out;
  }

  static std::vector<std::string> choices_of(const OptionInfo& o) {
    constexpr std::string_view kOneOf = "one of: ";
    if (o.type == "true or false") return {"true", "false"};
    std::vector<std::string> out;
    if (!o.type.starts_with(kOneOf)) return out;
    for (std::string_view rest = std::string_view{o.type}.substr(kOneOf.size()); !rest.empty();) {
      const std::size_t end = std::min(rest.find(", "), rest.size());
      out.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 2, rest.size()));
    }
    return out;
  }

  static gui::Knob knob_of(const OptionInfo& o, const std::string& value) {
    std::vector<std::string> choices = choices_of(o);
    const bool is_choice = std::find(choices.begin(), choices.end(), value) != choices.end();
    return {is_choice ? gui::Knob::Kind::Choice : gui::Knob::Kind::Value, o.path, o.summary, value,
            is_choice ? std::move(choices) : std::vector<std::string>{}};
  }

  /// Every scalar below a node, by its path.
  static void add_written(const Node& node, const std::string& path, const std::vector<OptionInfo>& known,
                          std::vector<gui::Knob>& out) {
    if (node.kind == Node::Kind::Scalar) {
      const auto o = std::find_if(known.begin(), known.end(), [&](const OptionInfo& k) { return k.path == path; });
      out.push_back(o != known.end()
                        ? knob_of(*o, node.scalar)
                        : gui::Knob{gui::Knob::Kind::Value, path, "option of the scenario", node.scalar, {}});
    }
    for (const auto& [key, value] : node.fields) add_written(value, path + "." + key, known, out);
    for (std::size_t i = 0; i < node.items.size(); ++i)
      add_written(node.items[i], fmt::format("{}[{}]", path, i), known, out);
  }

  /// Those that the scenario leaves as they are, with their values: behind those that it says.
  static void add_left_out(const Node& resolved, const std::vector<OptionInfo>& known, std::size_t first,
                           std::vector<gui::Knob>& out) {
    std::set<std::string> written;
    for (std::size_t i = first; i < out.size(); ++i) written.insert(out[i].name);
    for (const OptionInfo& o : known) {
      if (written.contains(o.path) || o.path.find('<') != std::string::npos || o.path.find("[]") != std::string::npos)
        continue;
      const Node* node = &resolved;
      for (std::string_view rest = o.path; node != nullptr && !rest.empty();) {
        const std::size_t end = std::min(rest.find('.'), rest.size());
        node = node->find(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      const bool is_scalar = node != nullptr && node->kind == Node::Kind::Scalar;
      const bool has_default = node == nullptr && o.path.starts_with("strategy[") && !o.default_value.empty() &&
                               !o.type.starts_with("list of");
      const std::string value = is_scalar ? node->scalar : has_default ? o.default_value : std::string{};
      if (!value.empty()) out.push_back(knob_of(o, value));
    }
  }

  const Wiring& wiring_;
  const Environment& environment_;
  std::unique_ptr<Prepared> prepared_;
};

}  // namespace

std::unique_ptr<gui::Resimulator> make_resimulator(const Wiring& wiring, const Environment& environment) {
  return std::make_unique<ScenarioResimulator>(wiring, environment);
}

}  // namespace orrery
