// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace orrery {

/// Where a value came from: a file with line and column, `--set`, an environment variable, or a default.
struct Origin {
  std::string source;  // "scenario.yaml", "--set", "ORRERY_WORKLOAD__BATCH", "default"
  int line = 0, column = 0;
  std::string text;  // the line it stands on; may be empty
};

/// Where the key of a map's field stands, in the file of its value.
struct KeyPlace {
  int line = 0, column = 0;
  std::string text;  // the line it stands on, where that is not the line of the value; may be empty
};

/// A document of maps, lists and scalar texts, each with its origin: what YAML and JSON files become before their
/// meaning is read. A value type; order of keys is kept. Scalars stay text, so the reader's type decides ("no" is never
/// silently false).
struct Node {
  enum class Kind { Null, Scalar, List, Map };
  Kind kind = Kind::Null;
  bool quoted = false;  // the scalar stood in quotes: it is a string whatever it looks like
  std::string scalar;
  std::vector<Node> items;                           // of a list
  std::vector<std::pair<std::string, Node>> fields;  // of a map, in file order; keys are unique
  Origin origin;
  KeyPlace key;  // of a field; unknown (line 0) elsewhere

  // Defined below: a vector of pairs needs the whole Node first.
  Node();
  Node(const Node&);
  Node(Node&&) noexcept;
  Node& operator=(const Node&);
  Node& operator=(Node&&) noexcept;
  ~Node();

  static Node of(std::string_view text, Origin origin = {});
  static Node map(Origin origin = {});
  static Node list(Origin origin = {});
  const Node* find(std::string_view key) const;  // null when absent or not a map
  Node* find(std::string_view key);
};

inline Node::Node() = default;
inline Node::Node(const Node&) = default;
inline Node::Node(Node&&) noexcept = default;
inline Node& Node::operator=(const Node&) = default;
inline Node& Node::operator=(Node&&) noexcept = default;
inline Node::~Node() = default;

/// What a hostile file may cost. Past a limit the reader throws UserError with the place.
struct ReadLimits {
  std::size_t bytes = 64u << 20;
  std::size_t depth = 64;
  std::size_t nodes = 2'000'000;
};

/// Parses YAML (JSON is accepted as its subset). Throws UserError with file:line:column on syntax errors, duplicate
/// keys, tags, non-scalar keys, cyclic or exploding aliases, and exceeded limits.
Node parse_yaml(std::string_view text, std::string_view file_name, const ReadLimits& limits = {});
/// Parses strict JSON (duplicate keys refused) with line and column; for config.json, tokenizer.json, safetensors
/// headers.
Node parse_json(std::string_view text, std::string_view file_name, const ReadLimits& limits = {});
/// The whole file, or UserError ("cannot read 'x': No such file or directory").
std::string read_file(const std::string& path, std::size_t max_bytes = 4ull << 30);
Node read_yaml(const std::string& path);
Node read_json(const std::string& path, const ReadLimits& limits = {});

/// Writes `text` to a temporary file in the same folder, syncs it and renames it over `path`, so that no reader and no
/// interrupt ever sees half of a file. Devices and pipes are written directly. Throws DeviceError.
void write_file_atomically(const std::string& path, std::string_view text);

/// Sets `path` ("a.b[2].c", append with "a.b+=", delete with "~a.b") to the YAML value `text`, as `--set path=value`
/// does. Maps on the way are made; the schema refuses unknown keys later. Throws UserError on a wrong path or value.
void set_path(Node& root, std::string_view path_and_value, const Origin& origin);

/// Canonical YAML of a document, for `resolved.yaml` and for people: reads back as the same tree.
std::string to_yaml(const Node& node);
/// The same on one line ("{stages: 4, send_buffer: 64 MB}").
std::string to_flow_yaml(const Node& node);
/// Canonical JSON, for hashing: sorted keys, no spaces, numbers in their shortest form, all other scalars as strings.
std::string to_canonical_json(const Node& node);

/// The diagnostic for a problem at a node, and at the key of a map's field.
Diagnostic at(const Node& node, std::string message, std::string hint = {});
Diagnostic at_key(const Node& field, std::string message, std::string hint = {});

}  // namespace orrery
