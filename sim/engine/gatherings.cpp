// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/gatherings.hpp"

namespace orrery {

std::uint32_t Gatherings::find_or_open(const GatheringKey& key, std::uint32_t expected) {
  std::uint32_t& first = first_of_home_[key.home];
  for (std::uint32_t m = first; m != UINT32_MAX; m = gatherings_[m].next)
    if (gatherings_[m].key == key) return m;
  std::uint32_t fresh = free_;
  if (fresh == UINT32_MAX) {
    fresh = static_cast<std::uint32_t>(gatherings_.size());
    gatherings_.emplace_back();
  } else {
    free_ = gatherings_[fresh].next;
  }
  const std::uint32_t version = gatherings_[fresh].version;  // outlives the gathering: its timers must stay invalid
  gatherings_[fresh] = {.key = key, .expected = expected, .next = first, .version = version};
  first = fresh;
  return fresh;
}

void Gatherings::close(std::uint32_t gathering) {
  std::uint32_t* link = &first_of_home_[gatherings_[gathering].key.home];
  while (*link != gathering) link = &gatherings_[*link].next;
  *link = gatherings_[gathering].next;
}

void Gatherings::release(std::uint32_t gathering) {
  ++gatherings_[gathering].version;
  gatherings_[gathering].next = free_;
  free_ = gathering;
}

}  // namespace orrery
