// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
/// added. Copies share what is stored already, so that copying millions takes no more than their table; each stores on
/// its own what comes then.
class Names {
 public:
  NameId intern(std::string_view text);
  std::string_view operator[](NameId id) const { return texts_[id.index()]; }
  std::size_t size() const { return texts_.size(); }

 private:
  /// Where the next text goes in the last block: a copy has nothing of it.
  struct Room {
    char* at = nullptr;
    std::size_t left = 0;

    Room() = default;
    Room(const Room&) {}
    Room(Room&& other) noexcept { *this = std::move(other); }
    Room& operator=(const Room&) { return *this = Room{}; }
    Room& operator=(Room&& other) noexcept {
      at = std::exchange(other.at, nullptr);
      left = std::exchange(other.left, 0);
      return *this;
    }
  };
  /// Of a table that is probed in line; free where there is no id.
  struct Place {
    std::uint32_t hash = 0;
    NameId id;
  };

  std::string_view store(std::string_view text);
  void grow();

  std::vector<std::shared_ptr<char[]>> blocks_;
  Room room_;
  std::vector<std::string_view> texts_;
  std::vector<Place> places_;  // a power of two of them, at most half of them taken
};

}  // namespace orrery

template <class Tag, class Int>
struct std::hash<orrery::Id<Tag, Int>> {
  std::size_t operator()(orrery::Id<Tag, Int> id) const { return std::hash<Int>{}(id.value); }
};
