// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/table.hpp"
#include "sim/machine/cluster.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery {
namespace {

using nlohmann::json;

/// A value of the resolved scenario with where it came from.
struct Leaf {
  std::string path, value, origin;
};

std::string origin_text(const Origin& o) {
  if (o.source.empty()) return "default";
  return o.line > 0 ? fmt::format("{}:{}:{}", o.source, o.line, o.column) : o.source;
}

/// `written` is the same place of the merged document; null where the file says nothing.
void collect(const Node& resolved, const Node* written, const std::string& path, std::vector<Leaf>& out) {
  if (resolved.kind == Node::Kind::Map && !resolved.fields.empty()) {
    for (const auto& [key, value] : resolved.fields)
      collect(value, written == nullptr ? nullptr : written->find(key), path.empty() ? key : path + "." + key, out);
    return;
  }
  out.push_back({path, to_flow_yaml(resolved), written == nullptr ? "default" : origin_text(written->origin)});
}

std::vector<Leaf> leaves_of(const Scenario& s) {
  std::vector<Leaf> leaves;
  collect(resolved_scenario(s), &s.document, {}, leaves);
  return leaves;
}

class Show final : public Command {
 public:
  std::string_view name() const override { return "config show"; }
  std::string_view summary() const override { return "a scenario with every default written out"; }
  std::string_view arguments() const override { return "[SCENARIO]"; }
  Arity arity() const override { return {0, 1}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = scenario_.flags();
    all.push_back(
        {"--origin", "", "each value with where it came from", [this](const std::string&) { origin_ = true; }});
    return all;
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Scenario s = scenario_.load(arguments.empty() ? "" : arguments[0], context);
    const std::string canonical = canonical_scenario(s);
    if (context.json) {
      json values = json::array();
      for (const Leaf& l : leaves_of(s)) values.push_back({{"path", l.path}, {"value", l.value}, {"origin", l.origin}});
      context.console.out(json{{"schema_version", kSchemaVersion},
                               {"id", sha256(canonical)},
                               {"resolved", json::parse(canonical)},
                               {"values", values}}
                              .dump(2) +
                          "\n");
    } else if (origin_) {
      Table table{{{"key"}, {"value"}, {"origin"}}};
      for (const Leaf& l : leaves_of(s)) table.add({l.path, l.value, l.origin});
      context.console.out(table.text());
    } else {
      context.console.out(to_yaml(resolved_scenario(s)) + "# id " + sha256(canonical) + "\n");
    }
    return exit_code::kOk;
  }

 private:
  ScenarioFlags scenario_;
  bool origin_ = false;
};

class Check final : public Command {
 public:
  std::string_view name() const override { return "config check"; }
  std::string_view summary() const override { return "read scenarios and say what is wrong with them"; }
  std::string_view arguments() const override { return "SCENARIO…"; }
  Arity arity() const override { return {1, 1000}; }
  std::vector<Flag> flags() override { return scenario_.flags(); }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    json rows = json::array();
    std::string text;
    for (const std::string& a : arguments) {
      const Scenario s = scenario_.load(a, context);
      const bool on_host = s.cluster.device == "host";
      const auto program =
          make_program(s, context.wiring, {.workspaces = on_host ? &context.wiring.workspaces() : nullptr});
      const std::string id = sha256(canonical_scenario(s));
      rows.push_back({{"name", s.name}, {"id", id}, {"plans", program->plans().size()}});
      text += fmt::format("{} is right: {} plan{}, id {}\n", s.name, program->plans().size(),
                          program->plans().size() == 1 ? "" : "s", id.substr(0, 8));
    }
    context.console.out(context.json ? json{{"schema_version", kSchemaVersion}, {"scenarios", rows}}.dump(2) + "\n"
                                     : text);
    return exit_code::kOk;
  }

 private:
  ScenarioFlags scenario_;
};

json option_json(const OptionInfo& o) {
  return {{"path", o.path}, {"type", o.type}, {"default", o.default_value}, {"summary", o.summary}};
}

class Explain final : public Command {
 public:
  std::string_view name() const override { return "config explain"; }
  std::string_view summary() const override { return "what a key of a scenario, of a cluster or of a strategy means"; }
  std::string_view arguments() const override { return "[KEY]"; }
  Arity arity() const override { return {0, 1}; }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const std::vector<OptionInfo> found = matching(arguments.empty() ? "" : arguments[0]);
    json rows = json::array();
    for (const OptionInfo& o : found) rows.push_back(option_json(o));
    context.console.out(context.json ? json{{"schema_version", kSchemaVersion}, {"options", rows}}.dump(2) + "\n"
                                     : help_text(found));
    return exit_code::kOk;
  }

 private:
  /// `strategy.zero1` is written as an element of a list: `strategy[].zero1`.
  static std::string without_lists(std::string path) {
    for (std::size_t at = path.find("[]"); at != std::string::npos; at = path.find("[]")) path.erase(at, 2);
    return path;
  }

  /// What may stand in a scenario: its keys, those of a cluster in place of its name, and options of strategies.
  static std::vector<OptionInfo> all_options() {
    std::vector<OptionInfo> all = describe_options<ScenarioOptions>();
    for (OptionInfo& o : describe_options<Cluster>("cluster")) all.push_back(std::move(o));
    for (const StrategyEntry& s : strategies()) {
      const std::string path = "strategy[]." + std::string{s.name};
      all.push_back({path, "options", "{}", std::string{s.summary}});
      for (OptionInfo& o : s.options()) {
        o.path = path + "." + o.path;
        all.push_back(std::move(o));
      }
    }
    return all;
  }

  static std::vector<OptionInfo> matching(const std::string& key) {
    if (key.empty()) return describe_options<ScenarioOptions>();
    const std::string wanted = without_lists(key);
    const std::vector<OptionInfo> all = all_options();
    std::vector<OptionInfo> found;
    for (const OptionInfo& o : all) {
      const std::string path = without_lists(o.path);
      if (path == wanted || path.starts_with(wanted + ".")) found.push_back(o);
    }
    if (found.empty()) found = called(all, wanted);
    if (found.empty()) throw unknown_name("key", key, known_beside(all, wanted));
    return found;
  }

  /// Keys of that name alone, those that are least deep.
  static std::vector<OptionInfo> called(const std::vector<OptionInfo>& all, const std::string& name) {
    std::vector<OptionInfo> found;
    std::ptrdiff_t least = std::numeric_limits<std::ptrdiff_t>::max();
    for (const OptionInfo& o : all) {
      if (!o.path.ends_with("." + name)) continue;
      const std::ptrdiff_t depth = std::count(o.path.begin(), o.path.end(), '.');
      if (depth < least) found.clear();
      least = std::min(least, depth);
      if (depth == least) found.push_back(o);
    }
    return found;
  }

  /// The keys below the longest part of a path that there is: those that may stand where it goes wrong.
  static std::vector<std::string> known_beside(const std::vector<OptionInfo>& all, const std::string& wanted) {
    for (std::string above = wanted;;) {
      const std::size_t dot = above.rfind('.');
      above = dot == std::string::npos ? "" : above.substr(0, dot);
      const std::string prefix = above.empty() ? "" : above + ".";
      std::vector<std::string> known;
      for (const OptionInfo& o : all) {
        const std::string path = without_lists(o.path);
        if (!path.starts_with(prefix)) continue;
        std::string next = path.substr(0, path.find('.', prefix.size()));
        if (std::find(known.begin(), known.end(), next) == known.end()) known.push_back(std::move(next));
      }
      if (!known.empty()) return known;
    }
  }
};

/// JSON Schema of one option's type.
json type_schema(const OptionInfo& o) {
  json out = {{"description", o.summary}};
  const std::string type = o.type.substr(0, o.type.find(','));
  if (o.type.starts_with("one of: ")) {
    std::string_view rest{o.type};
    for (rest.remove_prefix(8); !rest.empty();) {
      const std::size_t comma = std::min(rest.find(", "), rest.size());
      out["enum"].push_back(std::string{rest.substr(0, comma)});
      rest.remove_prefix(std::min(comma + 2, rest.size()));
    }
  } else if (type == "integer" || type == "number") {
    out["type"] = type;
  } else if (type == "true or false") {
    out["type"] = "boolean";
  } else if (type.starts_with("list of")) {
    out["type"] = "array";
  } else if (type != "anything") {
    out["type"] = "string";
  }
  return out;
}

json schema() {
  json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "Orrery scenario"},
               {"type", "object"},
               {"additionalProperties", false},
               {"required", {"model", "workload"}}};
  for (const OptionInfo& o : describe_options<ScenarioOptions>()) {
    json* at = &root;
    std::string_view path{o.path};
    while (path.find('.') != std::string_view::npos) {
      const std::string key{path.substr(0, path.find('.'))};
      path.remove_prefix(key.size() + 1);
      json& next = key == "<name>" ? (*at)["additionalProperties"] : (*at)["properties"][key];
      if (!next.is_object()) next = json::object();
      next["type"] = "object";
      if (!next.contains("additionalProperties")) next["additionalProperties"] = false;
      at = &next;
    }
    (*at)["properties"][std::string{path}] = type_schema(o);
  }
  return root;
}

class Schema final : public Command {
 public:
  std::string_view name() const override { return "config schema"; }
  std::string_view summary() const override { return "JSON Schema of scenario files, for editors"; }

  int run(AppContext& context, const std::vector<std::string>&) override {
    context.console.out(schema().dump(2) + "\n");
    return exit_code::kOk;
  }
};

}  // namespace

std::unique_ptr<Command> make_config_show() { return std::make_unique<Show>(); }
std::unique_ptr<Command> make_config_check() { return std::make_unique<Check>(); }
std::unique_ptr<Command> make_config_explain() { return std::make_unique<Explain>(); }
std::unique_ptr<Command> make_config_schema() { return std::make_unique<Schema>(); }

}  // namespace orrery
