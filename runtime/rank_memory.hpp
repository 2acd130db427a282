// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/device.hpp"
#include "runtime/op_call.hpp"
#include "runtime/tier_links.hpp"
#include "sim/timeline/timeline.hpp"

namespace orrery {

/// Places that the ops of a rank with one stream get: the same in each execution from the same start, so they are
/// recorded once and replayed, and the allocator is left alone.
struct PlacementScript {
  std::vector<std::uintptr_t> places;  // in order of the marks
  std::uint64_t version = 0;           // of the memory that they were recorded on; 0: not recorded
};

/// Memory of one rank over all tiers: persistent tensors by name, the storage that ops take and give back, and the
/// account of both.
class RankMemory {
 public:
  struct Options {
    std::array<std::int64_t, kNumTiers> capacity{};  // of tiers that the device does not give
    const Device* device = nullptr;
    bool record_samples = true;
    AllocatorOptions allocator = {};  // of the device
  };
  RankMemory(RankId rank, const Options& options) : rank_{rank}, options_{options} {}

  /// The place of a persistent tensor, taken when its name is new on its tier. Throws UserError when the sizes of a
  /// name differ.
  std::uintptr_t persistent(const Plan& plan, TensorId owner);
  /// Readies a tier, and room to follow the marks of one execution.
  void open(Tier t) { tier(t); }
  void reserve(std::size_t marks);

  /// What an execution starts with.
  struct Start {
    const Plan* plan = nullptr;
    std::span<const TensorId> persistent;  // tensors of the rank's class; must outlive the memory
    std::uint32_t instance = 0;
    PlacementScript* script = nullptr;  // null for ranks with several streams
    std::size_t marks = 0;              // storage taken and given back in one execution
  };
  void begin(const Start& start);
  void take(const OpRecord& op, std::uintptr_t* places);
  void give_back(const OpRecord& op, std::uintptr_t* places, std::vector<std::uint32_t>& counters);
  /// Records the bytes of the tiers that have changed since the last sample.
  void sample(std::int64_t at_ns);
  void end();
  /// After a failure: gives back all that ops had taken.
  void abandon(const std::uintptr_t* places);

  /// The account since the last call, which then starts anew.
  void take_account(std::int64_t origin_ns, std::vector<Peak>& peaks, std::vector<MemorySample>& samples);
  /// Where a tensor lies on a tier that the host cannot read; null when it can.
  DeviceMemory* device(Tier t) const { return tier_of(t) ? tier_of(t)->arena.device() : nullptr; }
  DiskFile* file() const { return tier_of(Tier::Disk) ? tier_of(Tier::Disk)->arena.file() : nullptr; }
  TransferCounters& transfers() { return transfers_; }
  /// Another one when executions start from other free space.
  std::uint64_t version() const { return version_; }
  std::mutex& mutex() { return mutex_; }

 private:
  struct Event {
    TensorId owner;
    Tier tier;
    bool taken;
    std::int64_t bytes;
  };
  struct TierState {
    TierState(std::int64_t capacity, Backing backing, const AllocatorOptions& allocator)
        : arena{capacity, backing, allocator} {}
    TierState(std::unique_ptr<DeviceMemory> device, const AllocatorOptions& allocator)
        : arena{std::move(device), allocator} {}
    Arena arena;
    std::int64_t live = 0;
    std::int64_t peak = -1;  // −1: none yet
    OpId peak_op;
    std::uint32_t peak_instance = 0;
    std::size_t peak_events = 0;      // of the instance, up to the peak
    const Plan* peak_plan = nullptr;  // whose ids the owners have
    std::span<const TensorId> peak_persistent;
    std::vector<Event> events_at_peak;
    bool changed = false;
  };
  struct Sample {
    std::int64_t at_ns, bytes;
    Tier tier;
  };
  struct Stored {
    std::uintptr_t place = 0;
    std::int64_t bytes = 0;
  };

  TierState& tier(Tier t);
  const TierState* tier_of(Tier t) const { return tiers_[static_cast<std::size_t>(t)].get(); }
  void grow(TierState& tier, std::int64_t bytes, OpId op);
  std::vector<std::pair<TensorId, std::int64_t>> owners_at_peak(const TierState& state, Tier t) const;
  [[noreturn]] void out_of_memory(const StorageMark& mark, OpId op, const Plan& plan) const;

  RankId rank_;
  Options options_;
  std::array<std::unique_ptr<TierState>, kNumTiers> tiers_;
  std::map<std::pair<std::string, Tier>, Stored> persistent_;
  std::uint64_t version_ = 1;  // changes with the free space that executions start from
  Start now_;                  // the running execution
  bool replays_ = false;
  std::size_t next_place_ = 0;
  std::vector<Event> events_;  // of the running instance
  std::vector<Sample> samples_;
  TransferCounters transfers_;
  std::mutex mutex_;  // of ranks with several streams
};

/// Bytes that the storage of an owner takes in its arena.
std::int64_t storage_bytes(const Plan& plan, TensorId owner);

}  // namespace orrery
