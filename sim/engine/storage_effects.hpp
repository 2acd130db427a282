// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim/base/offset_allocator.hpp"

namespace orrery {

/// What a stretch of a block's events came to in an arena, so that it need not be walked where it comes again.
///
/// An OffsetAllocator decides by the sizes of its gaps and their order alone. Two arenas are alike for a stretch when
/// their gaps and the blocks that the stretch gives back follow each other in the same order, with the same sizes, and
/// touch each other in the same places: then what the stretch leaves of the one is what it leaves of the other, each
/// piece moved with the gap or block that it lies in. How large the last gap is does not matter while it is larger than
/// any other can become.
class StorageEffects {
 public:
  /// A block that a change of the stretch gives back or takes.
  struct Block {
    std::uint32_t change = 0;
    std::int64_t offset = 0, size = 0;
  };
  /// In bytes.
  struct Outcome {
    std::vector<Block> taken;  // that are there behind it
    std::int64_t net = 0;      // more live than before
    std::int64_t rise = 0;     // the most on the way
    std::int64_t end = -1;     // of the block that ends last; −1: none is taken
    std::vector<OffsetAllocator::Range> gaps;
  };

  /// Whether it has come to something new too often for this to be of use.
  bool is_rare() const;
  /// What the stretch comes to in this arena, where it gives back these blocks that are there before it, and takes so
  /// many bytes in all; null: not known. Holds until the next call.
  const Outcome* find(const OffsetAllocator& arena, std::span<const Block> given, std::int64_t takes);
  /// What it has come to where `find`, called before it, did not know; but for the gaps, which are the arena's.
  void learn(const OffsetAllocator& arena, const Outcome& outcome);

 private:
  /// A gap or a block that is given back, as the arena has them side by side.
  struct Piece {
    std::int64_t offset = 0, size = 0;
    std::uint64_t what = 0;  // 0: a gap; else the change, from 1 on
  };
  struct Place {
    std::uint32_t piece = 0;
    std::int64_t beyond = 0;  // its offset
  };
  struct Effect {
    std::vector<std::uint64_t> key;
    std::vector<Place> gaps, taken;
    Place end;
    Outcome outcome;  // where it was learnt
  };

  Place place_of(std::int64_t offset) const;
  std::int64_t offset_of(Place p) const { return pieces_[p.piece].offset + p.beyond; }

  std::unordered_map<std::uint64_t, Effect> effects_;  // by the hash of the key; never iterated
  std::uint32_t known_ = 0, unknown_ = 0;              // how often
  // Of the latest call of `find`.
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> key_;
  std::uint64_t hash_ = 0;
  std::int64_t end_ = -1;  // of the last gap, where that may be of any size
  Outcome outcome_;
};

}  // namespace orrery
