// SPDX-License-Identifier: Apache-2.0
// Documents as YAML and as canonical JSON.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/whole_number.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

constexpr std::size_t kLineWidth = 100;  // lists that fit are written on one line

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// The characters that mean nothing to YAML wherever they stand; all others put a text between quotes.
bool is_harmless(char c) {
  return is_letter(c) || is_digit(c) || std::string_view{"_-./+%()=<>^ :$"}.find(c) != std::string_view::npos;
}

bool is_plain_yaml(std::string_view text) {
  if (text.empty() || text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  const bool is_decimal = text.size() > 1 && (text[0] == '.' || text[0] == '-') && is_digit(text[1]);
  const bool starts_well = is_letter(text[0]) || is_digit(text[0]) || text[0] == '_' || text[0] == '/' || is_decimal ||
                           text.starts_with("./") || text.starts_with("../");
  return starts_well && text.find(": ") == std::string_view::npos && std::all_of(text.begin(), text.end(), is_harmless);
}

bool is_null_word(std::string_view text) { return text == "null" || text == "Null" || text == "NULL"; }

/// Texts that some reader of YAML takes for something else.
bool is_yaml_word(std::string_view text) {
  std::string lower{text};
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const std::string_view word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
    if (lower == word) return true;
  return false;
}

/// A JSON string, which is a double-quoted YAML scalar as well.
void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
  out += '"';
}

void append_scalar(const Node& node, std::string& out) {
  const std::string& text = node.scalar;
  const bool is_number = parse_number(text).has_value();
  const bool looks_typed = node.quoted ? is_number || is_yaml_word(text) : is_null_word(text);
  if ((is_number && !node.quoted) || (is_plain_yaml(text) && !looks_typed))
    out += text;
  else
    append_json_string(text, out);
}

void append_key(const std::string& key, std::string& out) {
  if (is_plain_yaml(key) && !is_null_word(key))
    out += key;
  else
    append_json_string(key, out);
}

bool is_leaf(const Node& node) {
  return node.kind == Node::Kind::Null || node.kind == Node::Kind::Scalar ||
         (node.items.empty() && node.fields.empty());
}

void append_flow(const Node& node, std::string& out) {
  switch (node.kind) {
    case Node::Kind::Null:
      out += "null";
      return;
    case Node::Kind::Scalar:
      append_scalar(node, out);
      return;
    case Node::Kind::List:
      out += '[';
      for (const Node& item : node.items) {
        if (&item != &node.items.front()) out += ", ";
        append_flow(item, out);
      }
      out += ']';
      return;
    case Node::Kind::Map:
      out += '{';
      for (const auto& field : node.fields) {
        if (&field != &node.fields.front()) out += ", ";
        append_key(field.first, out);
        out += ": ";
        append_flow(field.second, out);
      }
      out += '}';
      return;
  }
  bug("a node of no kind");
}

/// A list of leaves that fits on a line.
bool is_short_list(const Node& node) {
  if (node.kind != Node::Kind::List || !std::all_of(node.items.begin(), node.items.end(), is_leaf)) return false;
  std::size_t width = 0;
  for (const Node& item : node.items) width += item.scalar.size() + 2;
  return width <= kLineWidth;
}

void append_block(const Node& node, std::size_t indent, std::string& out);

/// The value of a field or item: after `inline_gap` on the same line if it is short, else as a block after `block_gap`.
void append_value(const Node& value, std::size_t indent, std::string_view inline_gap, std::string_view block_gap,
                  std::string& out) {
  if (is_leaf(value) || is_short_list(value)) {
    out += inline_gap;
    append_flow(value, out);
    out += '\n';
  } else {
    out += block_gap;
    append_block(value, indent, out);
  }
}

/// The lines of a list or map at an indentation. The first line continues the current one.
void append_block(const Node& node, std::size_t indent, std::string& out) {
  const std::string below = fmt::format("\n{:{}}", "", indent + 2);
  for (const Node& item : node.items) {
    if (&item != &node.items.front()) out.append(indent, ' ');
    out += '-';
    append_value(item, indent + 2, " ", " ", out);
  }
  for (const auto& field : node.fields) {
    if (&field != &node.fields.front()) out.append(indent, ' ');
    append_key(field.first, out);
    out += ':';
    append_value(field.second, indent + 2, " ", below, out);
  }
}

void append_json_scalar(const Node& node, std::string& out) {
  const std::string& text = node.scalar;
  if (node.quoted) return append_json_string(text, out);
  if (text == "true" || text == "false")
    out += text;
  else if (const auto integer = whole_number<std::int64_t>(text))
    out += std::to_string(*integer);
  else if (const auto number = parse_number(text))
    out += fmt::format("{}", *number == 0 ? 0.0 : *number);
  else
    append_json_string(text, out);
}

void append_json_map(const Node& node, std::string& out);

void append_json(const Node& node, std::string& out) {
  switch (node.kind) {
    case Node::Kind::Null:
      out += "null";
      return;
    case Node::Kind::Scalar:
      append_json_scalar(node, out);
      return;
    case Node::Kind::List:
      out += '[';
      for (const Node& item : node.items) {
        if (&item != &node.items.front()) out += ',';
        append_json(item, out);
      }
      out += ']';
      return;
    case Node::Kind::Map:
      append_json_map(node, out);
      return;
  }
  bug("a node of no kind");
}

void append_json_map(const Node& node, std::string& out) {
  std::vector<const std::pair<std::string, Node>*> sorted;
  for (const auto& field : node.fields) sorted.push_back(&field);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  out += '{';
  for (const auto* field : sorted) {
    if (field != sorted.front()) out += ',';
    append_json_string(field->first, out);
    out += ':';
    append_json(field->second, out);
  }
  out += '}';
}

}  // namespace

std::string to_yaml(const Node& node) {
  std::string out;
  append_value(node, 0, "", "", out);
  return out;
}

std::string to_flow_yaml(const Node& node) {
  std::string out;
  append_flow(node, out);
  return out;
}

std::string to_canonical_json(const Node& node) {
  std::string out;
  append_json(node, out);
  return out;
}

}  // namespace orrery
