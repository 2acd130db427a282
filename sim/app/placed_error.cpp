// SPDX-License-Identifier: Apache-2.0
#include "sim/app/placed_error.hpp"

#include <cctype>

namespace orrery {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words{{}};
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_')
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  return words;
}

/// The field of that name in a document of options, however deep.
const Node* field_named(const Node& options, const std::string& name) {
  if (const Node* field = options.find(name)) return field;
  for (const auto& [key, node] : options.fields)
    if (const Node* field = field_named(node, name)) return field;
  for (const Node& item : options.items)
    if (const Node* field = field_named(item, name)) return field;
  return nullptr;
}

const Node* field_named_in(const Diagnostic& d, const Node& scenario) {
  for (const std::string& word : words_of(d.message + ' ' + d.hint))
    for (const char* part : {"strategy", "workload"})
      if (const Node* options = scenario.find(part))
        if (const Node* field = field_named(*options, word)) return field;
  const Node* strategy = scenario.find("strategy");
  return strategy && strategy->kind == Node::Kind::List ? strategy : scenario.find("workload");
}

}  // namespace

UserError placed(const UserError& error, const Node& scenario) {
  std::vector<Diagnostic> all;
  for (const Diagnostic& d : error.diagnostics()) {
    const Node* field = d.file.empty() ? field_named_in(d, scenario) : nullptr;
    all.push_back(field ? at_key(*field, d.message, d.hint) : d);
  }
  return UserError{std::move(all)};
}

}  // namespace orrery
