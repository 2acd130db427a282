// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>

namespace orrery {

/// An index into one vector of one owner, as a type of its own. A default-made id is `none`.
template <class Tag, class Int = std::uint32_t>
struct Id {
  Int value = std::numeric_limits<Int>::max();

  constexpr Id() = default;
  constexpr explicit Id(std::size_t index) : value{static_cast<Int>(index)} {}
  constexpr std::size_t index() const { return value; }
  constexpr bool is_none() const { return value == std::numeric_limits<Int>::max(); }
  constexpr auto operator<=>(const Id&) const = default;
};

struct NameTag;
using NameId = Id<NameTag>;

/// Texts stored once. Equal texts have equal ids, given out in order of first use. Views stay valid while texts are
/// added.
class Names {
 public:
  NameId intern(std::string_view text);
  std::string_view operator[](NameId id) const { return texts_[id.index()]; }
  std::size_t size() const { return texts_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::deque<std::string> texts_;  // never moves a text
  std::unordered_map<std::string, NameId, Hash, std::equal_to<>> ids_;
};

}  // namespace orrery

template <class Tag, class Int>
struct std::hash<orrery::Id<Tag, Int>> {
  std::size_t operator()(orrery::Id<Tag, Int> id) const { return std::hash<Int>{}(id.value); }
};
