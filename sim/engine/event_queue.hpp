// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace orrery {

/// Timers in order of (time, insertion). Timers of one instant share a bucket, so that the heap holds instants, not
/// timers: ranks that march in step cost no heap operation each. A timer is cancelled by raising the version its owner
/// compares it with.
class EventQueue {
 public:
  struct Fired {
    std::uint32_t id = 0, version = 0;
  };

  bool empty() const { return heap_.empty(); }
  void push(std::int64_t at_ps, Fired timer);
  /// The id of a timer of the earliest instant. Not when empty.
  std::uint32_t next_id() const { return buckets_[heap_.front().order & kBucketMask].timer.id; }
  /// The earliest instant. Not when empty.
  std::int64_t next_ps() const { return heap_.front().at_ps; }
  /// The earliest instant; its timers, in the order in which they were pushed, replace the contents of `out`.
  std::int64_t pop(std::vector<Fired>& out);

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr int kBucketBits = 24;
  static constexpr std::uint64_t kBucketMask = (1u << kBucketBits) - 1;
  struct Instant {
    std::int64_t at_ps = 0;
    std::uint64_t order = 0;  // insertion, then bucket in the low bits
    __extension__ using Key = __int128;
    Key key() const { return static_cast<Key>(at_ps) << 64 | order; }
    bool before(const Instant& o) const { return key() < o.key(); }
  };
  struct Node {
    Fired timer;
    std::uint32_t next = kNone;
  };
  struct Bucket {
    std::int64_t at_ps = 0;
    Fired timer;                                 // the first, which most often is the only one
    std::uint32_t second = kNone, last = kNone;  // nodes
  };

  static std::size_t hash(std::int64_t at_ps) {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(at_ps) * 0x9e3779b97f4a7c15ull) >> 56);
  }
  std::uint32_t new_node(Fired timer);
  std::uint32_t new_bucket(std::int64_t at_ps);
  void drain(std::uint32_t bucket, std::vector<Fired>& out);
  void sift_up(Instant moving);
  void pop_root();
  std::size_t least_of_four(std::size_t first) const;
  std::size_t least_of(std::size_t first, std::size_t end) const;

  std::vector<Instant> heap_;  // 4-ary
  std::vector<Node> nodes_;
  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> free_buckets_;
  std::uint32_t free_node_ = kNone;
  std::uint64_t next_order_ = 0;
  std::array<std::uint32_t, 256> recent_ =
      filled();  // the youngest bucket of an instant, by hash: older ones take no more

  static constexpr std::array<std::uint32_t, 256> filled() {
    std::array<std::uint32_t, 256> a{};
    a.fill(kNone);
    return a;
  }
};

}  // namespace orrery
