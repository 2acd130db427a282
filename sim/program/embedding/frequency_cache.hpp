// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "sim/base/open_table.hpp"
#include "sim/plan/kinds/embedding.hpp"
#include "sim/program/embedding/id_stream.hpp"

namespace orrery {

/// Which rows of a table are in the slots of a cache, batch by batch (arXiv 2208.05321): rows of a batch that are not
/// there come into free slots, and where these are too few rows leave that the batch does not ask for: under `Dataset`
/// the least frequent of the data, under `Lfu` those with the fewest look-ups since they came, of equals the least
/// frequent. Rows come in the order of their frequency, the most frequent into the lowest free slot. The frequencies
/// are those that the ids are drawn with; rows that are equally frequent count in order of their numbers.
class FrequencyCache {
 public:
  struct Options {
    std::int64_t slots = 1;
    EvictionPolicy policy = EvictionPolicy::Dataset;
    std::int64_t warm = 0;  // rows that are there from the start, the most frequent ones
  };
  /// What a batch changes. The first one brings the rows that are there from the start.
  struct Change {
    std::vector<std::int32_t> missed, missed_slots;   // rows that come, and where to
    std::vector<std::int32_t> victims, victim_slots;  // rows that leave, and from where
  };
  struct Counts {
    std::int64_t lookups = 0, hits = 0;                // ids, and those whose rows were there
    std::int64_t unique = 0, missed = 0, victims = 0;  // rows; those that came without having been there from the start
  };

  /// `frequencies` must outlive the cache.
  FrequencyCache(const IdStream& frequencies, const Options& options);

  /// Sees to it that the rows of all ids are there. Throws UserError when there are more of them than slots.
  Change prepare(std::span<const std::int32_t> ids);

  const Counts& counts() const { return counts_; }
  /// All rows that are there with their slots, as victims in order of their numbers.
  Change all() const;

 private:
  struct Held {
    std::int32_t row = -1, slot = 0;
    std::int64_t uses = 0;   // look-ups since it came
    std::int64_t batch = 0;  // the last one that asked for it

    std::uint64_t key() const { return static_cast<std::uint64_t>(row); }
    bool is_free() const { return row < 0; }
  };
  /// Of two rows the smaller one leaves first.
  struct Place {
    std::int64_t uses = 0;  // 0 under Dataset
    double probability = 0;
    std::int32_t row = 0;
    bool operator>(const Place& other) const;
  };
  template <class T>
  using LeastFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;
  struct Wanted {
    std::int32_t row = 0;
    std::int64_t times = 0;
    double probability = 0;
  };

  void start(Change& change);
  std::vector<Wanted> count(std::span<const std::int32_t> ids);
  void evict(std::size_t rows, Change& change);
  void admit(const Wanted& wanted, Change& change);

  const IdStream& frequencies_;
  Options options_;
  OpenTable<Held> held_;
  LeastFirst<Place> order_;  // one of each row that is held, with its uses when it was last looked at
  LeastFirst<std::int32_t> free_;
  std::vector<std::int32_t> warm_;  // until the first batch
  std::int64_t batch_ = 0;
  Counts counts_;
};

/// The rank of each row by its frequency, the most frequent one 0.
std::vector<std::int32_t> frequency_ranks(const IdStream& frequencies);

}  // namespace orrery
