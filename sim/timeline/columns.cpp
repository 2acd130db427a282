// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/columns.hpp"

namespace orrery {
namespace {

/// False when the bytes end within a number or it has more than 64 bits.
bool take_varint(std::string_view bytes, std::size_t& at, std::uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at >= bytes.size()) return false;
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

}  // namespace

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

std::string encode_column(std::span<const std::int64_t> values) {
  std::string out;
  out.reserve(values.size() * 2);
  std::uint64_t previous = 0;
  for (const std::int64_t value : values) {
    const std::uint64_t difference = static_cast<std::uint64_t>(value) - previous;  // wraps
    append_varint(out, (difference << 1) ^ (difference >> 63 ? ~std::uint64_t{0} : 0));
    previous = static_cast<std::uint64_t>(value);
  }
  return out;
}

std::optional<std::vector<std::int64_t>> decode_column(std::string_view bytes, std::size_t rows) {
  if (rows > bytes.size()) return {};  // a number takes at least a byte
  std::vector<std::int64_t> out(rows);
  std::size_t at = 0;
  std::uint64_t previous = 0;
  for (std::int64_t& value : out) {
    std::uint64_t zigzag = 0;
    if (!take_varint(bytes, at, zigzag)) return {};
    previous += (zigzag >> 1) ^ (zigzag & 1 ? ~std::uint64_t{0} : 0);
    value = static_cast<std::int64_t>(previous);
  }
  if (at != bytes.size()) return {};
  return out;
}

}  // namespace orrery
