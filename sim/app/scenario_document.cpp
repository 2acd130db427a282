// SPDX-License-Identifier: Apache-2.0
// The layers of a scenario: includes < file < environment < overrides.
#include <fmt/format.h>

#include <algorithm>

#include "sim/app/scenario.hpp"
#include "sim/model/load.hpp"

namespace orrery {
namespace {

constexpr int kDeepestInclude = 8;

/// Fields of `over` replace or join those of `base`; lists and scalars are replaced. A workload of another kind
/// replaces the one before.
void merge(Node& base, const Node& over) {
  if (base.kind != Node::Kind::Map || over.kind != Node::Kind::Map) {
    base = over;
    return;
  }
  for (const auto& [key, value] : over.fields) {
    Node* found = base.find(key);
    const bool is_other_workload = key == "workload" && found != nullptr && found->fields.size() == 1 &&
                                   value.fields.size() == 1 && found->fields[0].first != value.fields[0].first;
    if (found == nullptr)
      base.fields.emplace_back(key, value);
    else if (is_other_workload)
      *found = value;
    else
      merge(*found, value);
  }
}

Node with_includes(Node document, int depth) {
  const Node* include = document.find("include");
  if (include == nullptr || include->kind != Node::Kind::List) return document;
  Node base = Node::map(document.origin);
  for (const Node& name : include->items) {
    if (depth == kDeepestInclude)
      throw UserError{at(name, fmt::format("files include each other more than {} deep", kDeepestInclude))};
    const std::string path = file_named_by(name);
    if (path.empty())
      throw UserError{at(name, fmt::format("cannot find the file {} to include", in_quotes(name.scalar)))};
    merge(base, with_includes(read_yaml(path), depth + 1));
  }
  std::erase_if(base.fields, [](const auto& f) { return f.first == "include"; });
  merge(base, document);
  return base;
}

std::vector<std::string> top_keys() {
  std::vector<std::string> keys;
  for (const OptionInfo& o : describe_options<ScenarioOptions>()) {
    const std::string key = o.path.substr(0, o.path.find('.'));
    if (keys.empty() || keys.back() != key) keys.push_back(key);
  }
  return keys;
}

/// "ORRERY_WORKLOAD__TRAIN__BATCH" → "workload.train.batch"; empty for variables that are not meant for scenarios.
std::string path_of_variable(const std::string& variable) {
  constexpr std::string_view kPrefix = "ORRERY_";
  if (!variable.starts_with(kPrefix)) return {};
  std::string path;
  const std::string_view rest = std::string_view{variable}.substr(kPrefix.size());
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest.substr(i, 2) == "__") {
      path += '.';
      ++i;
    } else {
      path += static_cast<char>(std::tolower(static_cast<unsigned char>(rest[i])));
    }
  }
  const std::vector<std::string> keys = top_keys();
  const std::string top = path.substr(0, path.find('.'));
  const bool is_known = std::find(keys.begin(), keys.end(), top) != keys.end();
  if (!is_known && path.find('.') != std::string::npos)
    throw UserError{fmt::format("environment variable {} names no key of a scenario", variable),
                    name_hint("key", top, keys)};
  return is_known ? path : std::string{};
}

/// Files are read before anything is set.
void refuse_include(std::string_view change, const std::string& source) {
  if (change.starts_with('~')) change.remove_prefix(1);
  if (change.substr(0, change.find_first_of(".[+=")) == "include")
    throw UserError{fmt::format("{} cannot include files", source), "write a scenario that does"};
}

/// The file that a cluster or model is named by, read in place of its name, where a change is of a key in it.
void open_named(Node& document, std::string_view change, const Locations& locations) {
  if (change.starts_with('~')) change.remove_prefix(1);
  const std::string key{change.substr(0, std::min(change.find('.'), change.size()))};
  if (key.size() == change.size() || (key != "cluster" && key != "model")) return;
  Node* named = document.find(key);
  const bool is_cluster = key == "cluster";
  if (named == nullptr && is_cluster) named = &document.fields.emplace_back(key, Node::of("host")).second;
  if (named == nullptr || named->kind != Node::Kind::Scalar) return;
  *named =
      is_cluster ? read_yaml(locations.find_cluster(*named)) : read_json(config_file(locations.find_model(*named)));
}

}  // namespace

void apply_override(Node& document, const Override& o, const Locations& locations) {
  refuse_include(o.change, o.source);
  open_named(document, o.change, locations);
  set_path(document, o.change, {o.source, 0, 0, {}});
}

Node merged_document(Node document, const Environment& environment, const std::vector<Override>& overrides,
                     const Locations& locations) {
  Node merged = with_includes(std::move(document), 0);
  for (const auto& [variable, value] : environment)
    if (const std::string path = path_of_variable(variable); !path.empty())
      apply_override(merged, {path + "=" + value, variable}, locations);
  for (const Override& o : overrides) apply_override(merged, o, locations);
  return merged;
}

}  // namespace orrery
