// SPDX-License-Identifier: Apache-2.0
// `--set path=value`: one change of a document.
#include <fmt/format.h>

#include <variant>

#include "sim/base/whole_number.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

enum class Change { Assign, Append, Delete };

using Step = std::variant<std::string, std::size_t>;  // a key of a map, an index of a list

/// One change, and the origin that its values and errors get.
struct Edit {
  Change change;
  std::vector<Step> steps;
  std::string_view value;
  Origin origin;
};

[[noreturn]] void fail(const Origin& origin, std::string message, std::string hint = {}) {
  throw UserError{
      Diagnostic{std::move(message), std::move(hint), origin.source, origin.line, origin.column, origin.text}};
}

std::string step_text(const Step& step) {
  if (const auto* index = std::get_if<std::size_t>(&step)) return fmt::format("[{}]", *index);
  return in_quotes(std::get<std::string>(step));
}

std::vector<Step> parse_steps(std::string_view path, const Origin& origin) {
  const auto refuse = [&] {
    fail(origin, fmt::format("{} is not a path", in_quotes(path)), "for example a.b or a.list[2].c");
  };
  constexpr std::size_t kMostSteps = 32;
  std::vector<Step> steps;
  std::size_t i = 0;
  while (i < path.size()) {
    if (path[i] == '[') {
      const std::size_t close = std::min(path.find(']', i), path.size());
      const auto index = whole_number<std::size_t>(std::string_view{path}.substr(i + 1, close - i - 1));
      if (close == path.size() || !index) refuse();
      steps.emplace_back(*index);
      i = close + 1;
      if (i < path.size() && path[i] != '.' && path[i] != '[') refuse();
    } else {
      if (path[i] == '.' && i == 0) refuse();
      if (path[i] == '.') ++i;
      const std::size_t end = std::min(path.find_first_of(".[]", i), path.size());
      if (end == i || (end < path.size() && path[end] == ']')) refuse();
      steps.emplace_back(std::string{path.substr(i, end - i)});
      i = end;
    }
  }
  if (steps.empty() || steps.size() > kMostSteps) refuse();
  return steps;
}

Edit parse_edit(std::string_view text, Origin origin) {
  if (origin.text.empty()) origin.text = text;
  if (text.starts_with('~')) return {Change::Delete, parse_steps(text.substr(1), origin), {}, origin};
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    fail(origin, fmt::format("{} is not a change", in_quotes(text)),
         "write path=value, path+=value to append, or ~path to delete");
  const bool append = equals > 0 && text[equals - 1] == '+';
  const std::string_view path = text.substr(0, equals - (append ? 1 : 0));
  Edit edit{append ? Change::Append : Change::Assign, parse_steps(path, origin), text.substr(equals + 1), origin};
  if (edit.origin.line == 0 && edit.origin.text == text) edit.origin.column = static_cast<int>(equals) + 2;
  return edit;
}

void set_origin(Node& node, const Origin& origin) {
  node.origin = origin;
  node.key = {};
  for (Node& item : node.items) set_origin(item, origin);
  for (auto& [key, value] : node.fields) set_origin(value, origin);
}

Node parse_value(const Edit& edit) {
  Node value = parse_yaml(edit.value, edit.origin.source, {.bytes = 1u << 20, .depth = 32, .nodes = 100'000});
  set_origin(value, edit.origin);
  return value;
}

std::string_view kind_name(const Node& node) {
  switch (node.kind) {
    case Node::Kind::Null:
      return "empty";
    case Node::Kind::Scalar:
      return "a single value";
    case Node::Kind::List:
      return "a list";
    case Node::Kind::Map:
      return "a map";
  }
  bug("a node of no kind");
}

Node& element(Node& list, const Step& step, const Edit& edit) {
  const std::size_t index = std::get<std::size_t>(step);
  if (list.kind != Node::Kind::List)
    fail(edit.origin, fmt::format("{} needs a list; what stands there is {}", step_text(step), kind_name(list)));
  if (index >= list.items.size())
    fail(edit.origin, fmt::format("{} is past the end of a list of {}", step_text(step), list.items.size()),
         "indices start at 0; append with +=");
  return list.items[index];
}

void expect_map(const Node& node, const Step& step, const Edit& edit) {
  if (node.kind != Node::Kind::Map && node.kind != Node::Kind::Null)
    fail(edit.origin, fmt::format("{} needs a map; what stands there is {}", step_text(step), kind_name(node)));
}

/// The node one step below; fields that do not exist are made.
Node& made_step(Node& node, const Step& step, const Edit& edit) {
  if (std::holds_alternative<std::size_t>(step)) return element(node, step, edit);
  expect_map(node, step, edit);
  if (node.kind == Node::Kind::Null) node = Node::map(edit.origin);
  const std::string& key = std::get<std::string>(step);
  if (Node* found = node.find(key)) return *found;
  Node field;
  field.origin = edit.origin;
  return node.fields.emplace_back(key, std::move(field)).second;
}

std::vector<std::string> keys_of(const Node& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map.fields) keys.push_back(key);
  return keys;
}

/// The node one step below; it must exist.
Node& known_step(Node& node, const Step& step, const Edit& edit) {
  if (std::holds_alternative<std::size_t>(step)) return element(node, step, edit);
  expect_map(node, step, edit);
  const std::string& key = std::get<std::string>(step);
  if (Node* found = node.find(key)) return *found;
  fail(edit.origin, fmt::format("there is no key {} to delete", in_quotes(key)), name_hint("key", key, keys_of(node)));
}

void erase(Node& root, const Edit& edit) {
  Node* parent = &root;
  for (std::size_t i = 0; i + 1 < edit.steps.size(); ++i) parent = &known_step(*parent, edit.steps[i], edit);
  const Node* target = &known_step(*parent, edit.steps.back(), edit);
  if (const auto* index = std::get_if<std::size_t>(&edit.steps.back())) {
    parent->items.erase(parent->items.begin() + static_cast<std::ptrdiff_t>(*index));
    return;
  }
  std::erase_if(parent->fields, [&](const auto& field) { return &field.second == target; });
}

}  // namespace

void set_path(Node& root, std::string_view path_and_value, const Origin& origin) {
  const Edit edit = parse_edit(path_and_value, origin);
  if (edit.change == Change::Delete) return erase(root, edit);
  Node value = parse_value(edit);
  Node* target = &root;
  for (const Step& step : edit.steps) target = &made_step(*target, step, edit);
  if (edit.change == Change::Assign) {
    *target = std::move(value);
    return;
  }
  if (target->kind == Node::Kind::Null) *target = Node::list(edit.origin);
  if (target->kind != Node::Kind::List)
    fail(edit.origin, fmt::format("+= needs a list; what stands there is {}", kind_name(*target)));
  target->items.push_back(std::move(value));
}

}  // namespace orrery
