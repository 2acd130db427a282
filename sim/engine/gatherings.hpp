// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace orrery {

/// What makes ops of several ranks one: a communicator and how-manieth collective on it, or sender, receiver, tag and
/// how-manieth message.
struct GatheringKey {
  std::uint32_t home = 0;           // communicator, or number of communicators + receiver
  std::uint32_t from = UINT32_MAX;  // sender
  std::uint32_t route = 0;
  std::uint32_t sequence = 0;
  std::int64_t tag = 0;
  bool operator==(const GatheringKey&) const = default;
};

/// Ops of several ranks that start when the last of them has arrived and end together.
struct Gathering {
  GatheringKey key;
  std::uint32_t arrived = 0, expected = 0;
  std::uint32_t first = UINT32_MAX,
                last = UINT32_MAX;  // slots that have arrived, in order, linked by the owner of the slots
  std::uint32_t next = UINT32_MAX;  // of the same home, or free
  std::uint32_t version = 0;
  std::int64_t start_ps = 0;
  bool has_uses = false;
  bool is_to_send = false;  // a message that waits for its first byte
};

/// The gatherings that somebody waits for, found through their home: as few as a rank has streams.
class Gatherings {
 public:
  explicit Gatherings(std::uint32_t num_homes) : first_of_home_(num_homes, UINT32_MAX) {}

  /// The open gathering with this key, made if there is none.
  std::uint32_t find_or_open(const GatheringKey& key, std::uint32_t expected);
  /// All have arrived: nobody looks for it any more.
  void close(std::uint32_t gathering);
  /// It has ended: its number is used again.
  void release(std::uint32_t gathering);
  Gathering& operator[](std::uint32_t gathering) { return gatherings_[gathering]; }

 private:
  std::vector<std::uint32_t> first_of_home_;
  std::vector<Gathering> gatherings_;
  std::uint32_t free_ = UINT32_MAX;
};

}  // namespace orrery
