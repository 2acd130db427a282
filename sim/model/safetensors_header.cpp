// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/whole_number.hpp"
#include "sim/model/safetensors.hpp"

#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;  // as the reference implementation
constexpr std::size_t kPrefix = 8;                 // the length of the header, little endian
constexpr std::int64_t kMaxElements = std::int64_t{1} << 53;

struct StoredType {
  std::string_view name;
  int bits;
};
constexpr StoredType kTypes[] = {{"F64", 64},    {"F32", 32}, {"F16", 16},    {"BF16", 16},   {"I64", 64},
                                 {"I32", 32},    {"I16", 16}, {"I8", 8},      {"U64", 64},    {"U32", 32},
                                 {"U16", 16},    {"U8", 8},   {"BOOL", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8},
                                 {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"C64", 64}};

/// Problems inside a header name the file and the tensor; a line of the header would say little.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view file) : file_{file} {}

  [[noreturn]] void fail(std::string message, std::string hint = {}) const {
    throw UserError{Diagnostic{.message = std::move(message), .hint = std::move(hint), .file = file_}};
  }

  std::string_view json_of(std::string_view bytes, std::uint64_t file_size) const {
    if (bytes.size() < kPrefix || file_size < kPrefix) fail("not a safetensors file: shorter than 8 bytes");
    std::uint64_t length = 0;
    for (std::size_t i = kPrefix; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
    if (length > kMaxHeader) fail(fmt::format("the header has {} bytes, more than {}", length, kMaxHeader));
    if (length > file_size - kPrefix || length > bytes.size() - kPrefix)
      fail(fmt::format("the header has {} bytes, but the file ends after {}", length, file_size));
    const std::string_view json = bytes.substr(kPrefix, length);
    if (json.empty() || json.front() != '{') fail("the header is not a JSON object");
    return json;
  }

  StoredTensor tensor(const std::string& name, const Node& entry) const {
    StoredTensor t{.name = name};
    const Node* dtype = entry.find("dtype");
    const Node* shape = entry.find("shape");
    const Node* offsets = entry.find("data_offsets");
    if (!dtype || !shape || !offsets || entry.fields.size() != 3)
      fail(fmt::format("tensor '{}' must have dtype, shape and data_offsets, and nothing else", name));
    t.dtype = dtype->scalar;
    for (const std::uint64_t d : whole_numbers(name, *shape)) t.shape.push_back(static_cast<std::int64_t>(d));
    const std::vector<std::uint64_t> range = whole_numbers(name, *offsets);
    if (range.size() != 2 || range[0] > range[1]) fail(fmt::format("tensor '{}' has no valid data_offsets", name));
    t.begin = range[0], t.end = range[1];
    check_size(t);
    return t;
  }

  void check_cover(const std::vector<StoredTensor>& tensors, std::uint64_t data_size) const {
    std::uint64_t at = 0;
    for (const StoredTensor& t : tensors) {
      if (t.begin < at) fail(fmt::format("tensor '{}' overlaps another one at byte {}", t.name, t.begin));
      if (t.begin > at) fail(fmt::format("{} bytes before tensor '{}' belong to no tensor", t.begin - at, t.name));
      at = t.end;
    }
    if (at != data_size) fail(fmt::format("the tensors have {} bytes, the file has {}", at, data_size));
  }

  std::vector<std::pair<std::string, std::string>> metadata(const Node& node) const {
    std::vector<std::pair<std::string, std::string>> out;
    if (node.kind != Node::Kind::Map) fail("__metadata__ must be a map of texts");
    for (const auto& [key, value] : node.fields) {
      if (value.kind != Node::Kind::Scalar || !value.quoted) fail(fmt::format("__metadata__ '{}' must be a text", key));
      out.emplace_back(key, value.scalar);
    }
    return out;
  }

 private:
  std::vector<std::uint64_t> whole_numbers(const std::string& tensor, const Node& list) const {
    std::vector<std::uint64_t> out;
    if (list.kind != Node::Kind::List) fail(fmt::format("tensor '{}' needs lists as shape and data_offsets", tensor));
    for (const Node& item : list.items) {
      const auto value = whole_number<std::uint64_t>(item.scalar);
      const bool is_bare = item.kind == Node::Kind::Scalar && !item.quoted;
      if (!is_bare || !value || *value > static_cast<std::uint64_t>(kMaxElements))
        fail(fmt::format("tensor '{}' has '{}' where a whole number up to 2^53 should stand", tensor, item.scalar));
      out.push_back(*value);
    }
    return out;
  }

  void check_size(const StoredTensor& t) const {
    const auto bits = stored_bits(t.dtype);
    if (!bits) fail(fmt::format("tensor '{}' has the unknown dtype '{}'", t.name, t.dtype));
    std::int64_t elements = 1;
    for (const std::int64_t d : t.shape)
      if (__builtin_mul_overflow(elements, d, &elements) || elements > kMaxElements)
        fail(fmt::format("tensor '{}' has more than 2^53 elements", t.name));
    const std::uint64_t total_bits = static_cast<std::uint64_t>(elements) * static_cast<std::uint64_t>(*bits);
    if (total_bits % 8 != 0 || total_bits / 8 != t.end - t.begin)
      fail(fmt::format("tensor '{}' has {} bytes, but {} elements of {}", t.name, t.end - t.begin, elements, t.dtype));
  }

  std::string file_;
};

}  // namespace

std::int64_t StoredTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t d : shape) product *= d;
  return product;
}

std::int64_t SafetensorsHeader::parameter_count() const {
  std::int64_t sum = 0;
  for (const StoredTensor& t : tensors) sum += t.elements();
  return sum;
}

std::optional<int> stored_bits(std::string_view dtype) {
  for (const StoredType& t : kTypes)
    if (t.name == dtype) return t.bits;
  return std::nullopt;
}

SafetensorsHeader parse_safetensors_header(std::string_view bytes, std::uint64_t file_size,
                                           std::string_view file_name) {
  const HeaderReader reader{file_name};
  const std::string_view json = reader.json_of(bytes, file_size);
  const Node root = parse_json(json, file_name, {.bytes = kMaxHeader, .depth = 8, .nodes = 4'000'000});
  SafetensorsHeader header;
  header.data_start = kPrefix + json.size();
  for (const auto& [name, entry] : root.fields) {
    if (name == "__metadata__") {
      header.metadata = reader.metadata(entry);
    } else {
      header.tensors.push_back(reader.tensor(name, entry));
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair{a.begin, a.end} < std::pair{b.begin, b.end};
  });
  reader.check_cover(header.tensors, file_size - header.data_start);
  return header;
}

}  // namespace orrery
