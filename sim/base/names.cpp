// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/base/ids.hpp"

namespace orrery {

NameId Names::intern(std::string_view text) {
  if (2 * texts_.size() >= places_.size()) grow();
  const auto hash = static_cast<std::uint32_t>(std::hash<std::string_view>{}(text));
  const std::size_t mask = places_.size() - 1;
  std::size_t at = hash & mask;
  for (; !places_[at].id.is_none(); at = (at + 1) & mask)
    if (places_[at].hash == hash && texts_[places_[at].id.index()] == text) return places_[at].id;
  const NameId id{texts_.size()};
  texts_.push_back(store(text));
  places_[at] = {hash, id};
  return id;
}

std::string_view Names::store(std::string_view text) {
  constexpr std::size_t kLeast = 256, kMost = 1 << 16;
  if (text.size() > room_.left) {
    const std::size_t size = std::max(text.size(), std::min(kMost, kLeast << std::min<std::size_t>(blocks_.size(), 8)));
    blocks_.push_back(std::make_shared_for_overwrite<char[]>(size));
    room_.at = blocks_.back().get();
    room_.left = size;
  }
  char* const begin = room_.at;
  room_.at = std::copy(text.begin(), text.end(), begin);
  room_.left -= text.size();
  return {begin, text.size()};
}

void Names::grow() {
  const std::vector<Place> old =
      std::exchange(places_, std::vector<Place>(std::max<std::size_t>(16, 2 * places_.size())));
  const std::size_t mask = places_.size() - 1;
  for (const Place& p : old) {
    if (p.id.is_none()) continue;
    std::size_t at = p.hash & mask;
    while (!places_[at].id.is_none()) at = (at + 1) & mask;
    places_[at] = p;
  }
}

}  // namespace orrery
