// SPDX-License-Identifier: Apache-2.0
// Making, finding and blaming nodes.
#include "sim/base/yaml.hpp"

namespace orrery {

Node Node::of(std::string_view text, Origin origin) {
  Node node;
  node.kind = Kind::Scalar;
  node.scalar = text;
  node.origin = std::move(origin);
  return node;
}

Node Node::map(Origin origin) {
  Node node;
  node.kind = Kind::Map;
  node.origin = std::move(origin);
  return node;
}

Node Node::list(Origin origin) {
  Node node;
  node.kind = Kind::List;
  node.origin = std::move(origin);
  return node;
}

const Node* Node::find(std::string_view key) const {
  for (const auto& [name, value] : fields)
    if (name == key) return &value;
  return nullptr;
}

Node* Node::find(std::string_view key) { return const_cast<Node*>(std::as_const(*this).find(key)); }

Diagnostic at(const Node& node, std::string message, std::string hint) {
  const Origin& o = node.origin;
  return {std::move(message), std::move(hint), o.source, o.line, o.column, o.text};
}

Diagnostic at_key(const Node& field, std::string message, std::string hint) {
  if (field.key.line == 0) return at(field, std::move(message), std::move(hint));
  const std::string& text = field.key.line == field.origin.line ? field.origin.text : field.key.text;
  return {std::move(message), std::move(hint), field.origin.source, field.key.line, field.key.column, text};
}

}  // namespace orrery
