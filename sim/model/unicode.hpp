// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orrery {

/// The classes that the splitting rules of tokenizers tell apart: \p{L}, \p{N}, \s and the rest.
enum class CharClass : std::uint8_t { Letter, Number, Space, Other };
CharClass class_of(char32_t c);

/// One character of a UTF-8 text. A byte that starts no valid sequence is a character of its own.
struct DecodedChar {
  char32_t code = 0;
  std::size_t length = 1;
  bool valid = true;
};
DecodedChar decode_utf8(std::string_view text, std::size_t at);

void append_utf8(std::string& out, char32_t c);

}  // namespace orrery
