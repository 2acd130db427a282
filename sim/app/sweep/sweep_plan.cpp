// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "hw_models/expert_exchange.hpp"
#include "hw_models/fabric_parameters.hpp"
#include "hw_models/parameters.hpp"
#include "hw_models/software_profile.hpp"
#include "sim/app/cached_training.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/serving/serve_report.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/kept_files.hpp"
#include "sim/base/sha256.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// "x2", "+10%": how a parameter changes. Keys of scenarios have values of other forms.
bool is_factor(std::string_view value) {
  const bool is_times = value.size() > 1 && value[0] == 'x' && parse_number(value.substr(1));
  return is_times || ((value.starts_with('+') || value.starts_with('-')) && value.ends_with('%'));
}

/// Digests of the files of a folder and those below, by their paths in it.
std::string folder_digest(const std::string& folder) {
  std::vector<std::string> entries;
  std::error_code missing;
  for (const fs::directory_entry& file : fs::recursive_directory_iterator{folder, missing})
    if (file.is_regular_file())
      entries.push_back(file.path().lexically_relative(folder).string() + " " +
                        sha256(read_file(file.path().string())));
  std::sort(entries.begin(), entries.end());
  std::string text;
  for (const std::string& e : entries) text += e + "\n";
  return sha256(text);
}

/// Digests of parameters of this computer's own that a cluster's devices have.
std::string own_digest(const Cluster& cluster, const Locations& locations) {
  std::string text;
  for (std::size_t g = 0; g < cluster.num_groups(); ++g) {
    const std::string path = fmt::format("{}/{}.yaml", locations.own_parameters(), cluster.group(g).device);
    std::error_code missing;
    if (!fs::exists(path, missing)) continue;
    text += KeptFiles::once("digest of " + path, [&] { return Node::of(sha256(read_file(path))); }).scalar + "\n";
  }
  return text;
}

std::int64_t blocks_of(const Model& model) {
  const auto* t = std::get_if<Transformer>(&model.network);
  return t != nullptr ? std::ssize(t->encoder) + std::ssize(t->decoder) : 1;
}

std::int64_t simulated_ranks(const Scenario& s) {
  const Fidelity& f = s.options.fidelity;
  if (f.ranks == Expansion::Folded && f.network == NetworkKind::ClosedForm) return 1;
  return find_strategy(s.strategy).make(s.strategy_options)->mesh().size();
}

}  // namespace

nlohmann::json SweepPlan::to_json() const {
  nlohmann::json out = {{"keys", keys}, {"intervals", intervals}, {"version", version}, {"parameters", parameters}};
  for (const SweptScenario& s : scenarios)
    out["scenarios"].push_back({{"name", s.name}, {"document", to_yaml(s.document)}});
  return out;
}

SweepPlan SweepPlan::from_json(const nlohmann::json& document) {
  SweepPlan plan;
  plan.keys = document.at("keys").get<std::vector<std::string>>();
  plan.intervals = document.at("intervals");
  plan.version = document.at("version");
  plan.parameters = document.at("parameters");
  for (const nlohmann::json& s : document.at("scenarios")) {
    const std::string name = s.at("name");
    plan.scenarios.push_back({name, parse_yaml(s.at("document").get<std::string>(), name + ", as it is swept")});
  }
  return plan;
}

std::string parameters_digest() {
  std::string text;
  for (const std::string& folder : {parameters_folder(), fabrics_folder(), exchanges_folder(), profiles_folder()})
    text += folder_digest(folder) + "\n";
  return sha256(text);
}

ResolvedPoint resolve(const SweepPlan& plan, const SweepPoint& point, const Locations& locations) {
  const SweptScenario& base = plan.scenarios.at(point.scenario);
  Node document = base.document;
  std::vector<Change> changes;
  for (std::size_t i = 0; i < plan.keys.size(); ++i) {
    const std::string change = plan.keys[i] + "=" + point.values.at(i);
    if (is_factor(point.values[i]))
      changes.push_back(parse_change(change));
    else
      apply_override(document, {change, "--sweep"}, locations);
  }
  return {make_scenario(std::move(document), base.name, locations), std::move(changes)};
}

std::string point_id(const SweepPlan& plan, const ResolvedPoint& point, const Locations& locations) {
  std::string text = canonical_scenario(point.scenario) + own_digest(point.scenario.cluster, locations);
  for (const Change& c : point.changes) text += fmt::format("{}={}\n", c.parameter, c.factor);
  return sha256(fmt::format("{}{}\n{}\n{}\n", text, plan.parameters, plan.version, plan.intervals));
}

std::string refused_id(const SweepPlan& plan, const SweepPoint& point) {
  std::string text = to_canonical_json(plan.scenarios.at(point.scenario).document) + "\n";
  for (std::size_t i = 0; i < plan.keys.size(); ++i) text += plan.keys[i] + "=" + point.values.at(i) + "\n";
  return sha256(text + plan.version);
}

double expected_work(const Scenario& s) {
  const Workload& w = s.options.workload;
  const double passes = w.train      ? double(w.train->microbatches)
                        : w.generate ? double(w.generate->microbatches * w.generate->tokens)
                        : w.infer    ? double(w.infer->microbatches)
                        : w.serve    ? double(w.serve->traffic.requests)
                                     : double(w.cached_training->steps);
  return passes * double(blocks_of(s.model) * simulated_ranks(s));
}

nlohmann::json without_lists(const nlohmann::json& document) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : document.items()) {
    if (value.is_array() || key == "wall_seconds" || key == "parameters") continue;
    out[key] = value.is_object() ? without_lists(value) : value;
  }
  return out;
}

nlohmann::json predict_point(const SweepPlan& plan, const ResolvedPoint& point, AppContext& context) {
  const Workload& w = point.scenario.options.workload;
  const bool is_step = !w.serve && !w.cached_training;
  if (!is_step && !point.changes.empty())
    throw UserError{
        fmt::format("parameters of the hardware are not changed under a workload `{}`", point.scenario.workload_name()),
        "sweep a key of the scenario"};
  const auto check = [&] { context.interrupt.check(); };
  if (w.serve)
    return without_lists(orrery::to_json(serve_scenario(
        {.scenario = point.scenario, .wiring = context.wiring, .interval = plan.intervals, .check = check})));
  if (w.cached_training)
    return without_lists(orrery::to_json(simulate_cached_training(point.scenario, context.wiring, check)));
  return without_lists(orrery::to_json(predict_changed(point.scenario, point.changes, context)));
}

}  // namespace orrery
