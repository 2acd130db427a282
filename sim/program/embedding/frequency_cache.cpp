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

bool FrequencyCache::Place::operator>(const Place& other) const {
  return std::tie(uses, probability, other.row) > std::tie(other.uses, other.probability, row);
}

FrequencyCache::FrequencyCache(const IdStream& frequencies, const Options& options)
    : frequencies_{frequencies}, options_{options} {
  if (options.slots < 1 || options.warm > options.slots) bug("a cache without slots, or with too few for its start");
  warm_ = most_frequent_rows(frequencies, std::min(options.warm, frequencies.rows()));
  for (std::size_t s = 0; s < warm_.size(); ++s) {
    held_.insert({.row = warm_[s], .slot = static_cast<std::int32_t>(s)});
    order_.push({0, frequencies.probability(warm_[s]), warm_[s]});
  }
  for (auto s = static_cast<std::int32_t>(warm_.size()); s < options.slots; ++s) free_.push(s);
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

/// Uses only grow, so that the least place is the least row when it is up to date, and else at most that.
void FrequencyCache::evict(std::size_t rows, Change& change) {
  std::vector<Place> asked_for;
  while (rows > 0) {
    Place least = order_.top();
    order_.pop();
    const Held& held = *held_.find(static_cast<std::uint64_t>(least.row));
    if (held.batch == batch_) {
      asked_for.push_back(least);
    } else if (options_.policy == EvictionPolicy::Lfu && held.uses != least.uses) {
      least.uses = held.uses;
      order_.push(least);
    } else {
      change.victims.push_back(least.row);
      change.victim_slots.push_back(held.slot);
      free_.push(held.slot);
      held_.take(static_cast<std::uint64_t>(least.row));
      --rows;
    }
  }
  for (const Place& p : asked_for) order_.push(p);
}

void FrequencyCache::admit(const Wanted& wanted, Change& change) {
  held_.insert({.row = wanted.row, .slot = free_.top(), .uses = wanted.times, .batch = batch_});
  change.missed.push_back(wanted.row);
  change.missed_slots.push_back(free_.top());
  free_.pop();
  order_.push({options_.policy == EvictionPolicy::Lfu ? wanted.times : 0, wanted.probability, wanted.row});
}

/// Rows that are there from the start come with the first batch, but for those that it puts out.
void FrequencyCache::start(Change& change) {
  for (std::size_t s = 0; s < warm_.size(); ++s) {
    if (!held_.find(static_cast<std::uint64_t>(warm_[s]))) continue;
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
    if (Held* held = held_.find(static_cast<std::uint64_t>(w.row)))
      held->batch = batch_, held->uses += w.times, counts_.hits += w.times;
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
  return change;
}

FrequencyCache::Change FrequencyCache::all() const {
  Change out;
  std::vector<Held> held;
  held_.for_each([&](const Held& h) { held.push_back(h); });
  std::sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.row < b.row; });
  for (const Held& h : held) out.victims.push_back(h.row), out.victim_slots.push_back(h.slot);
  return out;
}

std::vector<std::int32_t> frequency_ranks(const IdStream& frequencies) {
  const std::vector<std::int32_t> rows = most_frequent_rows(frequencies, frequencies.rows());
  std::vector<std::int32_t> ranks(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) ranks[static_cast<std::size_t>(rows[r])] = static_cast<std::int32_t>(r);
  return ranks;
}

}  // namespace orrery
