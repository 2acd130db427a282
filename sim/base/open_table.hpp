// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace orrery {

/// Entries by a number of theirs, each once: an open table, probed in line, for what comes and goes millions of times
/// while there is little of it at once. An entry says what its `key()` is; one that was made without a value
/// `is_free()`. Addresses of entries hold until the next insertion or removal.
template <class Entry>
class OpenTable {
 public:
  std::size_t size() const { return size_; }

  /// Its key is not there yet.
  Entry& insert(const Entry& entry) {
    if (2 * size_ >= places_.size()) grow();
    ++size_;
    return places_[free_place(entry.key())] = entry;
  }

  /// Null where there is none.
  Entry* find(std::uint64_t key) {
    if (size_ == 0) return nullptr;
    Entry& there = places_[place_of(key)];
    return there.is_free() ? nullptr : &there;
  }
  const Entry* find(std::uint64_t key) const { return const_cast<OpenTable*>(this)->find(key); }

  /// Takes an entry out; a free one where there is none.
  Entry take(std::uint64_t key) {
    if (size_ == 0) return {};
    std::size_t at = place_of(key);
    const Entry found = std::exchange(places_[at], Entry{});
    if (found.is_free()) return found;
    --size_;
    // Those behind it move up where they would not be found across the free place.
    const std::size_t mask = places_.size() - 1;
    for (std::size_t next = (at + 1) & mask; !places_[next].is_free(); next = (next + 1) & mask)
      if (((next - home(places_[next].key())) & mask) >= ((next - at) & mask)) {
        places_[at] = std::exchange(places_[next], Entry{});
        at = next;
      }
    return found;
  }

  /// Calls `f(entry)` for all, in no order that means anything.
  template <class F>
  void for_each(F f) const {
    for (const Entry& e : places_)
      if (!e.is_free()) f(e);
  }

 private:
  std::size_t home(std::uint64_t key) const { return static_cast<std::size_t>(key * 0x9e3779b97f4a7c15ull >> shift_); }
  /// Where an entry is, or where the search for it ends.
  std::size_t place_of(std::uint64_t key) const {
    std::size_t at = home(key);
    while (!places_[at].is_free() && places_[at].key() != key) at = (at + 1) & (places_.size() - 1);
    return at;
  }
  std::size_t free_place(std::uint64_t key) const {
    std::size_t at = home(key);
    while (!places_[at].is_free()) at = (at + 1) & (places_.size() - 1);
    return at;
  }
  void grow() {
    const std::vector<Entry> old =
        std::exchange(places_, std::vector<Entry>(places_.empty() ? 16 : 2 * places_.size()));
    shift_ = 64 - std::countr_zero(places_.size());
    for (const Entry& e : old)
      if (!e.is_free()) places_[free_place(e.key())] = e;
  }

  std::vector<Entry> places_;  // a power of two of them, at most half of them taken
  std::size_t size_ = 0;
  int shift_ = 64;
};

}  // namespace orrery
