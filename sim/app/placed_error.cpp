// SPDX-License-Identifier: Apache-2.0
#include "sim/app/placed_error.hpp"

#include <algorithm>
#include <charconv>

namespace orrery {
namespace {

/// "layers[1]" of a map: the second item of its list.
const Node* step_from(const Node& map, std::string_view step) {
  const std::size_t open = step.find('[');
  const Node* field = map.find(step.substr(0, open));
  if (!field || open == std::string_view::npos) return field;
  std::size_t index = 0;
  std::from_chars(step.data() + open + 1, step.data() + step.size(), index);
  return index < field->items.size() ? &field->items[index] : nullptr;
}

const Node* at_path(const Node& from, std::string_view path) {
  const std::size_t dot = path.find('.');
  const Node* next = step_from(from, path.substr(0, dot));
  return !next || dot == std::string_view::npos ? next : at_path(*next, path.substr(dot + 1));
}

/// The option with that key in a document of options, however deep.
const Node* option_named(const Node& options, std::string_view key) {
  if (const Node* option = at_path(options, key)) return option;
  for (const auto& [name, node] : options.fields)
    if (const Node* option = option_named(node, key)) return option;
  for (const Node& item : options.items)
    if (const Node* option = option_named(item, key)) return option;
  return nullptr;
}

/// The first of the options that an error is about that one of these parts says; null where it names none of them.
const Node* option_of(const UserError& error, std::initializer_list<const Node*> parts) {
  const auto* of_options = dynamic_cast<const OptionError*>(&error);
  if (!of_options) return nullptr;
  for (const std::string& key : of_options->keys())
    for (const Node* part : parts)
      if (const Node* option = part ? option_named(*part, key) : nullptr) return option;
  return nullptr;
}

template <class Place>
UserError with_places(const UserError& error, Place place) {
  std::vector<Diagnostic> all;
  for (const Diagnostic& d : error.diagnostics()) all.push_back(d.file.empty() ? place(d) : d);
  return UserError{std::move(all)};
}

}  // namespace

UserError placed(const UserError& error, const Node& scenario) {
  const Node *strategy = scenario.find("strategy"), *workload = scenario.find("workload");
  const Node* option = option_of(error, {strategy, workload});
  if (!option) option = strategy && strategy->kind == Node::Kind::List ? strategy : workload;
  return with_places(error, [&](const Diagnostic& d) { return option ? at_key(*option, d.message, d.hint) : d; });
}

UserError placed_in(const UserError& error, const Node& part) {
  const Node* option = option_of(error, {&part});
  return with_places(error, [&](const Diagnostic& d) {
    return option ? at_key(*option, d.message, d.hint) : at(part, d.message, d.hint);
  });
}

}  // namespace orrery
