// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/open_table.hpp"
#include "sim/base/options.hpp"

namespace orrery {

/// Which row leaves a full cache.
enum class CachePolicy {
  Lru,       ///< the one whose last use is longest ago
  Lfu,       ///< the one least often used since it came; of several, the one whose last use is longest ago
  LightLfu,  ///< as LFU, but a row used ten times stays for good and is counted no further
};

inline std::span<const EnumName<CachePolicy>> enum_names(CachePolicy) {
  static constexpr EnumName<CachePolicy> names[] = {
      {CachePolicy::Lru, "lru"}, {CachePolicy::Lfu, "lfu"}, {CachePolicy::LightLfu, "light_lfu"}};
  return names;
}

/// Which rows of a table are in so many slots; what the slots hold is the caller's. Every operation takes constant
/// time: rows with one count are a list in order of use, and counts that some row has are a list in order (Shah, Mitra
/// and Matani, 2010). LRU is one list. The light LFU of HET (arXiv 2112.07221) takes rows with the highest count out
/// of the lists.
class RowCache {
 public:
  static constexpr std::int32_t kPermanentCount = 10;

  /// `slots` is at least 1.
  RowCache(CachePolicy policy, std::int32_t slots);

  /// The slot of a row that is there. Counts no use.
  std::optional<std::int32_t> find(std::int64_t row) const;
  /// Counts a use of a row that is there.
  void use(std::int32_t slot);

  /// Where a row that was not there is now, and which one had to leave that slot for it.
  struct Admission {
    std::int32_t slot = 0;
    std::optional<std::int64_t> victim;
  };
  /// Lets a row in that is not there, as its first use; no slot when all rows are there for good.
  std::optional<Admission> admit(std::int64_t row);

  std::int64_t row_of(std::int32_t slot) const { return entries_[static_cast<std::size_t>(slot)].row; }
  std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }
  std::int32_t slots() const { return slots_; }

 private:
  static constexpr std::int32_t kNone = -1;
  /// A row in its slot, between its neighbours in the list of its count.
  struct Entry {
    std::int64_t row = 0;
    std::int32_t list = kNone, older = kNone, newer = kNone;
  };
  /// Rows that were used `count` times, between the next lower and the next higher count that some row has.
  struct List {
    std::int32_t count = 1, oldest = kNone, newest = kNone, lower = kNone, higher = kNone;
  };
  /// A row and its slot, in the table of what is there.
  struct Place {
    std::int64_t row = -1;
    std::int32_t slot = 0;
    std::uint64_t key() const { return static_cast<std::uint64_t>(row); }
    bool is_free() const { return row < 0; }
  };

  Entry& entry(std::int32_t slot) { return entries_[static_cast<std::size_t>(slot)]; }
  List& list(std::int32_t index) { return lists_[static_cast<std::size_t>(index)]; }
  void append(std::int32_t slot, std::int32_t index);
  void remove(std::int32_t slot);
  /// The list of this count, made behind `lower` where there is none.
  std::int32_t list_behind(std::int32_t lower, std::int32_t count);

  CachePolicy policy_;
  std::int32_t slots_;
  std::vector<Entry> entries_;
  std::vector<List> lists_;
  std::vector<std::int32_t> unused_lists_;
  std::int32_t lowest_ = kNone;
  OpenTable<Place> places_;
};

}  // namespace orrery
