// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "sim/base/ids.hpp"
#include "sim/timeline/digest.hpp"

namespace orrery {

/// A column of integers as bytes: each number's difference to the one before, zigzag (0, −1, 1, −2 …), seven bits a
/// byte, least first. Columns that rise slowly take one or two bytes a row.
std::string encode_column(std::span<const std::int64_t> values);
/// Nothing when the bytes do not hold exactly that many numbers.
std::optional<std::vector<std::int64_t>> decode_column(std::string_view bytes, std::size_t rows);

void append_varint(std::string& out, std::uint64_t value);

/// How many values an enum of a file may have.
constexpr int count_of(Stream) { return kNumStreams; }
constexpr int count_of(Phase) { return kNumPhases; }
constexpr int count_of(Tier) { return kNumTiers; }
constexpr int count_of(TensorRole) { return kNumRoles; }
constexpr int count_of(OpClass) { return kNumOpClasses; }
constexpr int count_of(MeetingKind) { return 5; }
constexpr int count_of(TimelineSource) { return 2; }

template <class T>
constexpr std::int64_t to_number(const T& v) {
  if constexpr (requires { v.is_none(); })
    return v.is_none() ? -1 : static_cast<std::int64_t>(v.value);
  else
    return static_cast<std::int64_t>(v);
}

/// Sets an id (−1: none), enum or integer; false when the number is out of its range.
template <class T>
[[nodiscard]] bool from_number(std::int64_t n, T& out) {
  bool fits = true;
  if constexpr (requires { out.is_none(); }) {
    using Value = decltype(out.value);
    fits = n >= -1 && (n < 0 || static_cast<std::uint64_t>(n) < std::numeric_limits<Value>::max());
    out = n < 0 ? T{} : T{static_cast<std::size_t>(n)};
  } else if constexpr (std::is_enum_v<T>) {
    fits = n >= 0 && n < count_of(T{});
    out = static_cast<T>(n);
  } else {
    out = static_cast<T>(n);
    fits = static_cast<std::int64_t>(out) == n && (n >= 0 || std::is_signed_v<T>);
  }
  return fits;
}

/// A member of a struct as a column.
template <class T>
struct Field {
  const char* name;
  std::int64_t (*get)(const T&);
  bool (*set)(T&, std::int64_t);
};

template <class T, class M>
T class_of_member(M T::*);

template <auto P>
constexpr auto field(const char* name) {
  using T = decltype(class_of_member(P));
  return Field<T>{name, [](const T& t) { return to_number(t.*P); },
                  [](T& t, std::int64_t n) { return from_number(n, t.*P); }};
}

}  // namespace orrery
