// SPDX-License-Identifier: Apache-2.0
#include "sim/program/embedding/row_cache.hpp"

#include "sim/base/error.hpp"

namespace orrery {

RowCache::RowCache(CachePolicy policy, std::int32_t slots) : policy_{policy}, slots_{slots} {
  if (slots < 1) bug("a cache without slots");
}

std::optional<std::int32_t> RowCache::find(std::int64_t row) const {
  const Place* place = places_.find(static_cast<std::uint64_t>(row));
  return place ? std::optional{place->slot} : std::nullopt;
}

void RowCache::use(std::int32_t slot) {
  const std::int32_t old = entry(slot).list;
  if (old == kNone) return;  // there for good
  if (policy_ == CachePolicy::Lru) {
    remove(slot);
    append(slot, list_behind(kNone, 1));
    return;
  }
  const std::int32_t count = list(old).count + 1;
  if (policy_ == CachePolicy::LightLfu && count == kPermanentCount) {
    remove(slot);
    return;
  }
  const std::int32_t next = list_behind(old, count);
  remove(slot);
  append(slot, next);
}

std::optional<RowCache::Admission> RowCache::admit(std::int64_t row) {
  Admission admission{size(), {}};
  if (size() < slots_) {
    entries_.push_back({});
  } else {
    if (lowest_ == kNone) return {};
    admission.slot = list(lowest_).oldest;
    admission.victim = row_of(admission.slot);
    places_.take(static_cast<std::uint64_t>(*admission.victim));
    remove(admission.slot);
  }
  entry(admission.slot).row = row;
  places_.insert({row, admission.slot});
  append(admission.slot, list_behind(kNone, 1));
  return admission;
}

void RowCache::append(std::int32_t slot, std::int32_t index) {
  List& to = list(index);
  entry(slot) = {entry(slot).row, index, to.newest, kNone};
  (to.newest == kNone ? to.oldest : entry(to.newest).newer) = slot;
  to.newest = slot;
}

void RowCache::remove(std::int32_t slot) {
  Entry& e = entry(slot);
  List& from = list(e.list);
  (e.older == kNone ? from.oldest : entry(e.older).newer) = e.newer;
  (e.newer == kNone ? from.newest : entry(e.newer).older) = e.older;
  if (from.oldest == kNone) {
    (from.lower == kNone ? lowest_ : list(from.lower).higher) = from.higher;
    if (from.higher != kNone) list(from.higher).lower = from.lower;
    unused_lists_.push_back(e.list);
  }
  e.list = kNone;
}

std::int32_t RowCache::list_behind(std::int32_t lower, std::int32_t count) {
  const std::int32_t higher = lower == kNone ? lowest_ : list(lower).higher;
  if (higher != kNone && list(higher).count == count) return higher;
  std::int32_t index = static_cast<std::int32_t>(lists_.size());
  if (unused_lists_.empty()) {
    lists_.push_back({});
  } else {
    index = unused_lists_.back();
    unused_lists_.pop_back();
  }
  list(index) = {count, kNone, kNone, lower, higher};
  (lower == kNone ? lowest_ : list(lower).higher) = index;
  if (higher != kNone) list(higher).lower = index;
  return index;
}

}  // namespace orrery
