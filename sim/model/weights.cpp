// SPDX-License-Identifier: Apache-2.0
// Opening checkpoints, one file or sharded, and copying tensors out of them.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "sim/base/yaml.hpp"
#include "sim/model/mapped_file.hpp"
#include "sim/model/safetensors.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingle = "model.safetensors", kIndex = "model.safetensors.index.json";

float float_of_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// IEEE half precision: 1 sign, 5 exponent and 10 fraction bits.
float float_of_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = bits >> 15 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction ? std::nanf("") : sign * HUGE_VALF;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

/// Copies elements that may lie at any address, each through `convert`.
template <class Stored, class Out, class Convert>
void convert_all(std::span<const std::byte> from, std::span<Out> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, from.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<Out>(convert(value));
  }
}

template <class Out>
void copy_as(const StoredTensor& t, std::span<const std::byte> from, std::span<Out> out) {
  if (static_cast<std::int64_t>(out.size()) != t.elements())
    bug(fmt::format("{} places for the {} elements of '{}'", out.size(), t.elements(), t.name));
  const auto same = [](auto v) { return v; };
  if (t.dtype == "F32") return convert_all<float>(from, out, same);
  if (t.dtype == "F64") return convert_all<double>(from, out, same);
  if (t.dtype == "BF16") return convert_all<std::uint16_t>(from, out, float_of_bf16);
  if (t.dtype == "F16") return convert_all<std::uint16_t>(from, out, float_of_f16);
  throw UserError{fmt::format("tensor '{}' of type {} cannot be read as numbers", t.name, t.dtype),
                  "weights in F64, F32, F16 or BF16"};
}

std::string file_of_folder(const fs::path& folder) {
  for (const std::string_view name : {kSingle, kIndex})
    if (fs::exists(folder / name)) return (folder / name).string();
  throw UserError{fmt::format("there are no weights in '{}'", folder.string()),
                  fmt::format("a file {} or {}", kSingle, kIndex)};
}

/// A shard must lie beside its index: a path would let an index read any file.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of("/\\") == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

Weights::Weights(const std::string& path) {
  std::error_code ignored;
  const std::string file = fs::is_directory(path, ignored) ? file_of_folder(path) : path;
  if (file.size() > 5 && file.compare(file.size() - 5, 5, ".json") == 0) {
    add_index(file);
  } else {
    add_file(file);
  }
  sort_names();
}

Weights::~Weights() = default;
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;

void Weights::add_file(const std::string& path) {
  MappedFile file{path};
  SafetensorsHeader header = parse_safetensors_header(file.bytes(), file.bytes().size(), path);
  for (StoredTensor& t : header.tensors) {
    t.shard = files_.size();
    tensors_.push_back(std::move(t));
  }
  files_.push_back(std::move(file));
  data_starts_.push_back(header.data_start);
}

void Weights::add_index(const std::string& path) {
  const Node index = read_json(path);
  const Node* map = index.find("weight_map");
  if (!map || map->kind != Node::Kind::Map) throw UserError{at(index, "an index of weights needs a weight_map")};
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->fields) {
    if (!is_plain_file_name(file.scalar))
      throw UserError{at(file, fmt::format("'{}' is not the name of a file beside the index", file.scalar))};
    names.insert(file.scalar);
  }
  const fs::path folder = fs::path{path}.parent_path();
  for (const std::string& name : names) add_file((folder / name).string());
  sort_names();
  for (const auto& [tensor, file] : map->fields)
    if (!find(tensor)) throw UserError{at(file, fmt::format("tensor '{}' is not in '{}'", tensor, file.scalar))};
}

void Weights::sort_names() {
  by_name_.resize(tensors_.size());
  for (std::size_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
  std::sort(by_name_.begin(), by_name_.end(),
            [this](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
  for (std::size_t i = 1; i < by_name_.size(); ++i)
    if (tensors_[by_name_[i]].name == tensors_[by_name_[i - 1]].name)
      throw UserError{fmt::format("tensor '{}' is in two files", tensors_[by_name_[i]].name)};
}

const StoredTensor* Weights::find(std::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [this](std::size_t i, std::string_view n) { return tensors_[i].name < n; });
  return it != by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

std::span<const std::byte> Weights::bytes(const StoredTensor& tensor) const {
  const std::string_view file = files_[tensor.shard].bytes();
  const std::string_view part = file.substr(data_starts_[tensor.shard] + tensor.begin, tensor.end - tensor.begin);
  return std::as_bytes(std::span{part.data(), part.size()});
}

void Weights::copy(const StoredTensor& tensor, std::span<float> out) const { copy_as(tensor, bytes(tensor), out); }
void Weights::copy(const StoredTensor& tensor, std::span<double> out) const { copy_as(tensor, bytes(tensor), out); }

}  // namespace orrery
