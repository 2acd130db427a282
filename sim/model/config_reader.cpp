// SPDX-License-Identifier: Apache-2.0
#include "sim/model/config_reader.hpp"

#include <fmt/format.h>

#include "sim/base/units.hpp"
#include "sim/base/whole_number.hpp"

namespace orrery {
namespace {

std::string_view kind_name(const Node& node) {
  switch (node.kind) {
    case Node::Kind::Null:
      return "null";
    case Node::Kind::List:
      return "a list";
    case Node::Kind::Map:
      return "a map";
    case Node::Kind::Scalar:
      break;
  }
  return "a text";
}

/// The value as it stands in the file, short enough for a message.
std::string shown(const Node& node) {
  if (node.kind != Node::Kind::Scalar) return std::string{kind_name(node)};
  const std::string text = node.scalar.size() > 40 ? node.scalar.substr(0, 40) + "…" : node.scalar;
  return node.quoted ? fmt::format("\"{}\"", text) : text;
}

bool is_bare(const Node& node) { return node.kind == Node::Kind::Scalar && !node.quoted; }

}  // namespace

std::string_view first_spelling(std::string_view keys) { return keys.substr(0, keys.find('|')); }

const Node* ConfigReader::find(std::string_view keys) const {
  while (!keys.empty()) {
    const std::string_view key = first_spelling(keys);
    const Node* node = config_.find(key);
    if (node && node->kind != Node::Kind::Null) return node;
    keys.remove_prefix(std::min(keys.size(), key.size() + 1));
  }
  return nullptr;
}

void ConfigReader::problem(std::string_view keys, std::string message, std::string hint) {
  const Node* node = find(keys);
  problems_.push_back(at(node ? *node : config_, std::move(message), std::move(hint)));
}

std::optional<std::int64_t> ConfigReader::whole_number(const Node& node, std::string_view keys, std::int64_t low,
                                                       std::int64_t high) {
  const auto value = is_bare(node) ? orrery::whole_number<std::int64_t>(node.scalar) : std::nullopt;
  if (value && *value >= low && *value <= high) return value;
  problems_.push_back(at(node, fmt::format("{} must be a whole number from {} to {}, not {}", first_spelling(keys), low,
                                           high, shown(node))));
  return std::nullopt;
}

std::int64_t ConfigReader::integer(std::string_view keys, std::int64_t fallback, std::int64_t low, std::int64_t high) {
  const Node* node = find(keys);
  return node ? whole_number(*node, keys, low, high).value_or(fallback) : fallback;
}

std::optional<std::int64_t> ConfigReader::maybe_integer(std::string_view keys, std::int64_t low, std::int64_t high) {
  const Node* node = find(keys);
  return node ? whole_number(*node, keys, low, high) : std::nullopt;
}

std::optional<std::int64_t> ConfigReader::nullable_integer(std::string_view key, std::optional<std::int64_t> fallback,
                                                           std::int64_t low, std::int64_t high) {
  return config_.find(key) ? maybe_integer(key, low, high) : fallback;
}

std::optional<double> ConfigReader::nullable_real(std::string_view key, std::optional<double> fallback, double low,
                                                  double high) {
  if (!config_.find(key)) return fallback;
  return find(key) ? std::optional{real(key, low, low, high)} : std::nullopt;
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view keys, std::vector<std::int64_t> fallback,
                                                 std::size_t max_size, std::int64_t low, std::int64_t high) {
  const Node* node = find(keys);
  if (!node) return fallback;
  if (node->kind != Node::Kind::List || node->items.size() > max_size) {
    problem(keys, fmt::format("{} must be a list of at most {} whole numbers", first_spelling(keys), max_size));
    return fallback;
  }
  std::vector<std::int64_t> values;
  for (const Node& item : node->items)
    if (const auto value = whole_number(item, keys, low, high)) values.push_back(*value);
  return values;
}

double ConfigReader::real(std::string_view keys, double fallback, double low, double high) {
  const Node* node = find(keys);
  if (!node) return fallback;
  const auto value = is_bare(*node) ? parse_number(node->scalar) : std::nullopt;
  if (value && *value >= low && *value <= high) return *value;
  problem(keys,
          fmt::format("{} must be a number from {} to {}, not {}", first_spelling(keys), low, high, shown(*node)));
  return fallback;
}

bool ConfigReader::boolean(std::string_view keys, bool fallback) {
  const Node* node = find(keys);
  if (!node) return fallback;
  if (is_bare(*node) && (node->scalar == "true" || node->scalar == "false")) return node->scalar == "true";
  problem(keys, fmt::format("{} must be true or false, not {}", first_spelling(keys), shown(*node)));
  return fallback;
}

std::string ConfigReader::text(std::string_view keys, std::string_view fallback) {
  const Node* node = find(keys);
  if (!node) return std::string{fallback};
  if (node->kind == Node::Kind::Scalar) return node->scalar;
  problem(keys, fmt::format("{} must be a text, not {}", first_spelling(keys), shown(*node)));
  return std::string{fallback};
}

std::int64_t ConfigReader::layers(std::string_view keys, std::int64_t fallback) {
  return integer(keys, fallback, 1, ModelLimits::kLayers);
}

DType ConfigReader::dtype() {
  struct Spelling {
    std::string_view name;
    DType type;
  };
  static constexpr Spelling kSpellings[] = {
      {"float32", DType::F32}, {"bfloat16", DType::BF16},        {"float16", DType::F16},
      {"float64", DType::F64}, {"float8_e4m3fn", DType::F8E4M3}, {"float8_e5m2", DType::F8E5M2},
      {"auto", DType::F32}};
  constexpr std::string_view kKeys = "dtype|torch_dtype";
  std::string name = text(kKeys, "float32");
  if (name.rfind("torch.", 0) == 0) name.erase(0, 6);
  std::vector<std::string> known;
  for (const Spelling& s : kSpellings) {
    if (name == s.name) return s.type;
    known.emplace_back(s.name);
  }
  problem(kKeys, unknown_name("dtype", name, known).diagnostics().front().message);
  return DType::F32;
}

bool ConfigReader::check_divides(std::string_view part_key, std::int64_t part, std::string_view whole_key,
                                 std::int64_t whole) {
  if (part > 0 && whole % part == 0) return true;
  problem(find(part_key) ? part_key : whole_key,
          fmt::format("{} {} does not divide {} {}", first_spelling(part_key), part, first_spelling(whole_key), whole));
  return false;
}

void ConfigReader::finish() const {
  if (!problems_.empty()) throw UserError{problems_};
}

}  // namespace orrery
