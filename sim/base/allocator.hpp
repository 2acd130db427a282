// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/base/units.hpp"

namespace orrery {

/// How storage of a device is given out.
enum class AllocatorKind : std::uint8_t { BestFit, Buddy, PyTorch };

inline std::span<const EnumName<AllocatorKind>> enum_names(AllocatorKind) {
  static constexpr EnumName<AllocatorKind> names[] = {
      {AllocatorKind::BestFit, "best-fit"}, {AllocatorKind::Buddy, "buddy"}, {AllocatorKind::PyTorch, "pytorch"}};
  return names;
}

/// An allocator and its settings. Those behind `allocator` are of PyTorch's, under the names of PYTORCH_ALLOC_CONF.
struct AllocatorOptions {
  AllocatorKind allocator = AllocatorKind::BestFit;
  std::vector<std::int64_t> roundup_power2_divisions = {};
  std::optional<Bytes> max_split_size = std::nullopt;
  Bytes max_non_split_rounding = Bytes{20.0 * (1 << 20)};
  Bytes large_segment_size = Bytes{20.0 * (1 << 20)};
  bool expandable_segments = false;
  double garbage_collection_threshold = 0;
  double memory_fraction = 0;

  bool operator==(const AllocatorOptions&) const = default;

  template <class V>
  void visit(V& v) {
    v.field("allocator", allocator, "who gives out the memory of devices");
    v.field(
        "roundup_power2_divisions", roundup_power2_divisions,
        "pytorch: parts of a power of two that sizes round up to; one number for all sizes, or one for 1 MiB, 2 MiB, "
        "4 MiB and so on, the last for all that are larger; 0 or 1: multiples of 512 B",
        at_least(0));
    v.field("max_split_size", max_split_size,
            "pytorch: blocks of this size and more are given out whole; left out: all may be split",
            at_least(Bytes{20.0 * (1 << 20)}));
    v.field("max_non_split_rounding", max_non_split_rounding,
            "pytorch: how much larger than asked for a block that is given out whole may be", at_least(Bytes{}));
    v.field("large_segment_size", large_segment_size,
            "pytorch: what is asked of the device for requests from 1 MiB to 10 MiB",
            {.min = 0, .max = 0x1p40, .above_min = true});
    v.field("expandable_segments", expandable_segments,
            "pytorch: segments grow page by page in a range of addresses of their own");
    v.field(
        "garbage_collection_threshold", garbage_collection_threshold,
        "pytorch: share of the allowed memory above which old cached blocks are given back; needs `memory_fraction`; "
        "0: never",
        between(0.0, 1.0));
    v.field("memory_fraction", memory_fraction,
            "pytorch: share of the device's memory that may be used; 0: not limited", between(0.0, 1.0));
  }
};

/// Throws UserError for settings that the chosen allocator does not have, and numbers of divisions that are no power of
/// two.
void check(const AllocatorOptions& options);

/// What an allocator has done so far, in bytes. `allocated`: blocks whose owner is there, as large as they were given
/// out; `active`: those and blocks that an event still holds; `reserved`: what was taken from the device; `requested`:
/// what was asked for; `inactive_split`: free blocks of segments that something else holds.
struct AllocatorStats {
  std::int64_t allocated = 0, active = 0, reserved = 0, requested = 0, inactive_split = 0;
  std::int64_t peak_allocated = 0, peak_active = 0, peak_reserved = 0, peak_requested = 0;
  std::int64_t extent = 0;  // largest end of a block so far: how much address space is in use
  std::int64_t num_alloc_retries = 0, num_ooms = 0, num_device_allocs = 0, num_device_frees = 0;

  bool operator==(const AllocatorStats&) const = default;
};

/// Gives out places of one memory: engine and runtime fill theirs with the same allocator, so equal calls in equal
/// order give equal places and the prediction is the count to the byte.
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// A place of `bytes` bytes for work of `stream`; nothing when the memory is full.
  virtual std::optional<std::int64_t> allocate(std::int64_t bytes, std::int32_t stream = 0) = 0;
  /// Gives back the block at `place`, which must be live. `events`: of other streams that may still use it; it stays
  /// active until `complete_event` has been called as often.
  virtual void release(std::int64_t place, std::int32_t events = 0);
  /// Of a block that was released with events.
  virtual void complete_event(std::int64_t place);
  /// From now on the memory has so many bytes.
  virtual void set_capacity(std::int64_t bytes) = 0;

  const AllocatorStats& stats() const { return stats_; }
  std::int64_t live() const { return stats_.allocated; }
  std::int64_t high_water() const { return stats_.peak_reserved; }

 protected:
  /// Brings the peaks up to date.
  void raise();
  std::nullopt_t refuse();
  virtual void give_back(std::int64_t place) = 0;
  AllocatorStats stats_;

 private:
  std::map<std::int64_t, std::int32_t> waiting_;  // events of released blocks
};

/// Throws UserError as `check` does.
std::unique_ptr<Allocator> make_allocator(const AllocatorOptions& options, std::int64_t capacity = INT64_MAX);

/// Addresses that a memory of `capacity` bytes must have for the allocator: segments that come and go leave holes.
std::int64_t address_space(const AllocatorOptions& options, std::int64_t capacity);

}  // namespace orrery
