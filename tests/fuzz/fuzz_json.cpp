// SPDX-License-Identifier: Apache-2.0
// Any bytes as JSON: a tree or a UserError, and exactly the texts that nlohmann's reader accepts, but for what we
// refuse on purpose (duplicate keys, deep nesting, control characters and too many values).
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "sim/base/yaml.hpp"

namespace {

using namespace orrery;

constexpr ReadLimits kLimits{.bytes = 1u << 20, .depth = 32, .nodes = 50'000};

bool is_refused_on_purpose(const UserError& e) {
  const std::string& message = e.diagnostics()[0].message;
  for (const char* reason : {"duplicate key", "nested deeper", "is not text", "more than 50000 values"})
    if (message.find(reason) != std::string::npos) return true;
  return false;
}

/// nlohmann's reader refuses numbers beyond the range of a double; ours leaves them to the reader of the value.
bool has_huge_number(const Node& node) {
  const bool is_word = node.scalar == "true" || node.scalar == "false";
  if (node.kind == Node::Kind::Scalar && !node.quoted && !is_word && !parse_number(node.scalar)) return true;
  for (const Node& item : node.items)
    if (has_huge_number(item)) return true;
  for (const auto& [key, value] : node.fields)
    if (has_huge_number(value)) return true;
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const bool accepted = nlohmann::json::accept(text);
  try {
    const Node node = parse_json(text, "fuzz.json", kLimits);
    const std::string json = to_canonical_json(node);
    if (to_canonical_json(parse_json(json, "written")) != json) std::abort();
    if (!accepted && !has_huge_number(node)) std::abort();
  } catch (const UserError& e) {
    if (accepted && !is_refused_on_purpose(e)) std::abort();
  }
  return 0;
}
