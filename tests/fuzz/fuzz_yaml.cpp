// SPDX-License-Identifier: Apache-2.0
// Any bytes as YAML: a tree or a UserError. A tree that is written and read again is the same tree.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "sim/base/yaml.hpp"

namespace {

using namespace orrery;

constexpr ReadLimits kLimits{.bytes = 1u << 20, .depth = 32, .nodes = 50'000};

/// YAML allows keys of 1,024 characters at most where a key and its value share a line.
bool has_long_key(const Node& node) {
  constexpr std::size_t kLongestKey = 150;  // six bytes for each character that is escaped
  for (const auto& [key, value] : node.fields)
    if (key.size() > kLongestKey || has_long_key(value)) return true;
  for (const Node& item : node.items)
    if (has_long_key(item)) return true;
  return false;
}

void check_round_trip(const Node& node) {
  if (has_long_key(node)) return;
  const std::string json = to_canonical_json(node);
  if (to_canonical_json(parse_yaml(to_yaml(node), "written")) != json) std::abort();
  if (to_canonical_json(parse_yaml(to_flow_yaml(node), "written")) != json) std::abort();
  if (to_canonical_json(parse_json(json, "written")) != json) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  Node node;
  try {
    node = parse_yaml(text, "fuzz.yaml", kLimits);
  } catch (const UserError&) {
    return 0;
  }
  check_round_trip(node);  // an error here is a crash: what we write must read back
  try {
    set_path(node, text.substr(0, size / 2), {"--set", 0, 0, {}});
  } catch (const UserError&) {
  }
  return 0;
}
