// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/storage_effects.hpp"

#include <algorithm>

namespace orrery {
namespace {

constexpr std::size_t kMostEffects = 512;  // of a block on a rank
constexpr std::uint32_t kTries = 400;      // before it counts how often an effect was known

}  // namespace

bool StorageEffects::is_rare() const { return unknown_ > kTries && unknown_ > known_; }

const StorageEffects::Outcome* StorageEffects::find(const OffsetAllocator& arena, std::span<const Block> given,
                                                    std::int64_t takes) {
  key_.clear();
  pieces_.clear();
  for (const OffsetAllocator::Range& gap : arena.gaps()) pieces_.push_back({gap.offset, gap.size, 0});
  for (const Block& g : given) {
    const auto behind = std::upper_bound(pieces_.begin(), pieces_.end(), g.offset,
                                         [](std::int64_t offset, const Piece& p) { return offset < p.offset; });
    pieces_.insert(behind, {g.offset, g.size, std::uint64_t{g.change} + 1});
  }
  // What is not of the last gap can join up to all of it, and what is taken from the last gap can come back as another.
  const Piece last = pieces_.empty() ? Piece{} : pieces_.back();
  std::int64_t others = 2 * takes;
  for (std::size_t i = 0; i + 1 < pieces_.size(); ++i) others += pieces_[i].size;
  end_ = last.what == 0 && last.size > others ? last.offset + last.size : -1;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& p = pieces_[i];
    if (i + 1 == pieces_.size() && end_ >= 0) break;
    const bool touches = i + 1 < pieces_.size() && p.offset + p.size == pieces_[i + 1].offset;
    key_.push_back(static_cast<std::uint64_t>(p.size) | (touches ? 1u : 0u));  // sizes are multiples of 64
    key_.push_back(p.what);
  }
  key_.push_back(end_ >= 0);
  hash_ = key_.size();
  for (const std::uint64_t word : key_) hash_ = (hash_ ^ (hash_ >> 29) ^ word) * 0x9e3779b97f4a7c15ull;
  const auto it = effects_.find(hash_);
  if (it == effects_.end() || it->second.key != key_) {
    ++unknown_;
    return nullptr;
  }
  ++known_;
  const Effect& e = it->second;
  outcome_ = e.outcome;
  for (std::size_t i = 0; i < e.gaps.size(); ++i) outcome_.gaps[i].offset = offset_of(e.gaps[i]);
  if (end_ >= 0) outcome_.gaps.back().size = end_ - outcome_.gaps.back().offset;
  for (std::size_t i = 0; i < e.taken.size(); ++i) outcome_.taken[i].offset = offset_of(e.taken[i]);
  if (outcome_.end >= 0) outcome_.end = offset_of(e.end);
  return &outcome_;
}

/// The gap or block that an offset lies in: the last one that begins at it or before.
StorageEffects::Place StorageEffects::place_of(std::int64_t offset) const {
  const auto behind = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                       [](std::int64_t wanted, const Piece& p) { return wanted < p.offset; });
  const auto piece = static_cast<std::uint32_t>(behind - pieces_.begin() - 1);
  return {piece, offset - pieces_[piece].offset};
}

void StorageEffects::learn(const OffsetAllocator& arena, const Outcome& outcome) {
  if (key_.empty() || effects_.size() >= kMostEffects) return;
  Effect& e = effects_[hash_];
  e = {key_, {}, {}, {}, outcome};
  e.outcome.gaps.assign(arena.gaps().begin(), arena.gaps().end());
  for (const OffsetAllocator::Range& gap : e.outcome.gaps) e.gaps.push_back(place_of(gap.offset));
  for (const Block& t : outcome.taken) e.taken.push_back(place_of(t.offset));
  if (outcome.end < 0) return;
  e.end = place_of(outcome.end - 1);
  ++e.end.beyond;
}

}  // namespace orrery
