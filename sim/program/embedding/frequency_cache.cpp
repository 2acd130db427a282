// SPDX-License-Identifier: Apache-2.0
#include "sim/program/embedding/frequency_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <tuple>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// The next row of a field, by frequency.
struct NextRow {
  double probability = 0;
  std::int64_t row = 0, end = 0;
  bool operator<(const NextRow& other) const {  // the last one comes first
    return probability != other.probability ? probability < other.probability : row > other.row;
  }
};

/// The most frequent rows in order: fields are sorted, so that their heads are merged.
std::vector<std::int32_t> most_frequent_rows(const IdStream& frequencies, std::int64_t count) {
  std::priority_queue<NextRow> heads;
  const auto push = [&](std::int64_t row, std::int64_t end) {
    if (row < end) heads.push({frequencies.probability(row), row, end});
  };
  for (std::int64_t f = 0; f < frequencies.fields(); ++f)
    push(frequencies.first_row(f), f + 1 < frequencies.fields() ? frequencies.first_row(f + 1) : frequencies.rows());
  std::vector<std::int32_t> rows;
  while (std::ssize(rows) < count) {
    const NextRow next = heads.top();
    heads.pop();
    rows.push_back(static_cast<std::int32_t>(next.row));
    push(next.row + 1, next.end);
  }
  return rows;
}

}  // namespace

bool FrequencyCache::Place::operator<(const Place& other) const {
  return std::tie(uses, probability, other.row) < std::tie(other.uses, other.probability, row);
}

FrequencyCache::FrequencyCache(const IdStream& frequencies, const Options& options)
    : frequencies_{frequencies}, options_{options} {
  if (options.slots < 1 || options.warm > options.slots) bug("a cache without slots, or with too few for its start");
  warm_ = most_frequent_rows(frequencies, std::min(options.warm, frequencies.rows()));
  for (std::size_t s = 0; s < warm_.size(); ++s) {
    const Held held{.slot = static_cast<std::int32_t>(s), .probability = frequencies.probability(warm_[s])};
    held_[warm_[s]] = held;
    order_.insert(place(warm_[s], held));
  }
  for (auto s = static_cast<std::int32_t>(warm_.size()); s < options.slots; ++s) free_.insert(free_.end(), s);
}

FrequencyCache::Place FrequencyCache::place(std::int32_t row, const Held& held) const {
  return {options_.policy == EvictionPolicy::Lfu ? held.uses : 0, held.probability, row};
}

/// The different rows of a batch, those that are missed first, by frequency.
std::vector<FrequencyCache::Wanted> FrequencyCache::count(std::span<const std::int32_t> ids) {
  std::vector<std::int32_t> sorted{ids.begin(), ids.end()};
  std::sort(sorted.begin(), sorted.end());
  std::vector<Wanted> wanted;
  for (std::size_t i = 0, end = 0; i < sorted.size(); i = end) {
    end = static_cast<std::size_t>(
        std::upper_bound(sorted.begin() + static_cast<std::ptrdiff_t>(i), sorted.end(), sorted[i]) - sorted.begin());
    wanted.push_back({sorted[i], static_cast<std::int64_t>(end - i), 0});
  }
  if (std::ssize(wanted) > options_.slots)
    throw UserError{fmt::format("{} look-ups ask for {} different rows at once, the cache has room for {}", ids.size(),
                                wanted.size(), options_.slots),
                    "raise `ratio` or `rows`, or lower the batch or `prefetch`"};
  return wanted;
}

void FrequencyCache::evict(std::size_t rows, Change& change) {
  for (auto next = order_.begin(); rows > 0; --rows) {
    while (held_.at(next->row).batch == batch_) ++next;
    const std::int32_t row = next->row, slot = held_.at(row).slot;
    change.victims.push_back(row);
    change.victim_slots.push_back(slot);
    held_.erase(row);
    free_.insert(slot);
    next = order_.erase(next);
  }
}

void FrequencyCache::admit(const Wanted& wanted, Change& change) {
  const Held held{.slot = *free_.begin(), .batch = batch_, .probability = wanted.probability};
  free_.erase(free_.begin());
  change.missed.push_back(wanted.row);
  change.missed_slots.push_back(held.slot);
  held_[wanted.row] = held;
  order_.insert(place(wanted.row, held));
}

void FrequencyCache::use(std::int32_t row, std::int64_t times) {
  if (options_.policy != EvictionPolicy::Lfu) return;
  Held& held = held_.at(row);
  order_.erase(place(row, held));
  held.uses += times;
  order_.insert(place(row, held));
}

/// Rows that are there from the start come with the first batch, but for those that it puts out.
void FrequencyCache::start(Change& change) {
  for (std::size_t s = 0; s < warm_.size(); ++s) {
    if (!held_.contains(warm_[s])) continue;
    change.missed.push_back(warm_[s]);
    change.missed_slots.push_back(static_cast<std::int32_t>(s));
  }
  change.victims.clear(), change.victim_slots.clear(), warm_.clear();
}

FrequencyCache::Change FrequencyCache::prepare(std::span<const std::int32_t> ids) {
  ++batch_;
  const std::vector<Wanted> wanted = count(ids);
  counts_.lookups += std::ssize(ids);
  counts_.unique += std::ssize(wanted);
  std::vector<Wanted> missed;
  for (const Wanted& w : wanted) {
    if (const auto it = held_.find(w.row); it != held_.end())
      it->second.batch = batch_, counts_.hits += w.times;
    else
      missed.push_back({w.row, w.times, frequencies_.probability(w.row)});
  }
  std::sort(missed.begin(), missed.end(), [](const Wanted& a, const Wanted& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.row < b.row;
  });
  Change change;
  if (missed.size() > free_.size()) evict(missed.size() - free_.size(), change);
  if (batch_ == 1) start(change);
  counts_.missed += std::ssize(missed);
  counts_.victims += std::ssize(change.victims);
  for (const Wanted& m : missed) admit(m, change);
  for (const Wanted& w : wanted) use(w.row, w.times);
  return change;
}

FrequencyCache::Change FrequencyCache::all() const {
  Change out;
  for (const auto& [row, held] : held_) out.victims.push_back(row);
  std::sort(out.victims.begin(), out.victims.end());
  for (const std::int32_t row : out.victims) out.victim_slots.push_back(held_.at(row).slot);
  return out;
}

std::vector<std::int32_t> frequency_ranks(const IdStream& frequencies) {
  const std::vector<std::int32_t> rows = most_frequent_rows(frequencies, frequencies.rows());
  std::vector<std::int32_t> ranks(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) ranks[static_cast<std::size_t>(rows[r])] = static_cast<std::int32_t>(r);
  return ranks;
}

}  // namespace orrery
