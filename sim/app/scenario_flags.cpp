// SPDX-License-Identifier: Apache-2.0
#include "sim/app/scenario_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/app/wiring.hpp"
#include "sim/base/whole_number.hpp"

namespace orrery {

void ScenarioFlags::set(const std::string& key, const std::string& value, const std::string& flag) {
  Node text = Node::of(value);
  text.quoted = true;
  flags_.push_back({key + "=" + to_flow_yaml(text), flag});
}

std::vector<Flag> ScenarioFlags::flags() {
  return {{"--set", "PATH=VALUE", "change a value: a.b=v, append with a.b+=v, delete with ~a.b; repeatable",
           [this](const std::string& v) {
             sets_.push_back({v, "--set"});
           }},
          {"--model", "MODEL", "config.json, folder, or name of `orrery list models`",
           [this](const std::string& v) { set("model", v, "--model"); }},
          {"--cluster", "CLUSTER", "file, or name of `orrery list clusters`",
           [this](const std::string& v) { set("cluster", v, "--cluster"); }},
          {"--weights", "FILE", "safetensors file, index or folder",
           [this](const std::string& v) { set("weights", v, "--weights"); }}};
}

std::vector<Override> ScenarioFlags::overrides() const {
  // What is set below a flag's key, as `cluster.nodes` below `--cluster`, changes what the flag names.
  std::vector<Override> all, below;
  for (const Override& s : sets_) {
    const bool is_below = std::any_of(flags_.begin(), flags_.end(), [&](const Override& f) {
      return s.change.starts_with(f.change.substr(0, f.change.find('=')) + ".");
    });
    (is_below ? below : all).push_back(s);
  }
  all.insert(all.end(), flags_.begin(), flags_.end());
  all.insert(all.end(), below.begin(), below.end());
  return all;
}

ScenarioFlags::Named ScenarioFlags::document(const std::string& name, const AppContext& context) const {
  const Locations& locations = context.wiring.locations();
  if (!name.empty()) {
    const std::string path = locations.find_scenario(name);
    return {scenario_name(path), merged_document(read_yaml(path), context.environment, overrides(), locations)};
  }
  Node document =
      merged_document(Node::map({"the command line", 0, 0, {}}), context.environment, overrides(), locations);
  if (document.find("model") == nullptr)
    throw UserError{"there is no scenario and no --model", "name one of `orrery list scenarios`"};
  if (document.find("workload") == nullptr) set_path(document, "workload.infer={}", {"default", 0, 0, {}});
  const std::string model = document.find("model")->scalar;
  const bool is_name = !model.empty() && model.find('/') == std::string::npos;
  return {is_name ? model : "unnamed", std::move(document)};
}

Scenario ScenarioFlags::load(const std::string& name, const AppContext& context) const {
  Named named = document(name, context);
  return make_scenario(std::move(named.document), std::move(named.name), context.wiring.locations());
}

std::int64_t integer_option(const std::string& flag, const std::string& value, std::int64_t least) {
  const auto number = whole_number<std::int64_t>(value);
  if (!number || *number < least)
    throw UserError{fmt::format("option {} is {}", flag, in_quotes(value)),
                    fmt::format("give an integer of at least {}", least)};
  return *number;
}

double percent_option(const std::string& flag, const std::string& value, double least, double most) {
  const std::optional<double> v = parse_number(value.ends_with('%') ? value.substr(0, value.size() - 1) : value);
  if (!v || *v < least || *v > most)
    throw UserError{fmt::format("option {} is {}", flag, in_quotes(value)),
                    most < INFINITY ? fmt::format("give a number of percent from {} to {}", least, most)
                                    : "give a number of percent, such as 8"};
  return *v / 100;
}

double positive_option(const std::string& flag, const std::string& value) {
  const std::optional<double> v = parse_number(value);
  if (!v || !(*v > 0))
    throw UserError{fmt::format("option {} is {}", flag, in_quotes(value)), "give a number of more than 0"};
  return *v;
}

namespace {

template <class Q>
Q quantity_option(const std::string& flag, const std::string& value) {
  Diagnostic problem;
  const std::optional<double> v = parse_quantity(value, dimension_of(Q{}), problem);
  if (!v) throw UserError{fmt::format("option {}: {}", flag, problem.message), problem.hint};
  if (*v <= 0)
    throw UserError{fmt::format("option {} is {}", flag, in_quotes(value)),
                    fmt::format("give more than 0, such as {}", dimension_example(dimension_of(Q{})))};
  return Q{*v};
}

}  // namespace

Seconds time_option(const std::string& flag, const std::string& value) { return quantity_option<Seconds>(flag, value); }
Bytes size_option(const std::string& flag, const std::string& value) { return quantity_option<Bytes>(flag, value); }

void check_choice(const std::string& flag, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) == known.end())
    throw UserError{fmt::format("option {} is {}", flag, in_quotes(value)), name_hint("value", value, known)};
}

}  // namespace orrery
