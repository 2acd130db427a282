// SPDX-License-Identifier: Apache-2.0
#include "sim/base/crc32.hpp"

#include <array>

namespace orrery {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) rest = (rest & 1) != 0 ? 0xEDB88320u ^ (rest >> 1) : rest >> 1;
    table[i] = rest;
  }
  return table;
}

}  // namespace

std::uint32_t crc32(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t rest = 0xFFFFFFFFu;
  for (const char c : bytes) rest = kTable[(rest ^ static_cast<unsigned char>(c)) & 0xFF] ^ (rest >> 8);
  return ~rest;
}

}  // namespace orrery
