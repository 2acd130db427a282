// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace orrery {

/// The whole number that is the whole text ("12", "-3"); nothing for any other text, and for one that the type does not
/// hold.
template <class Integer>
std::optional<Integer> whole_number(std::string_view text) {
  Integer value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace orrery
