// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "sim/base/allocator.hpp"
#include "sim/base/open_table.hpp"
#include "sim/engine/allocation_trace.hpp"
#include "sim/engine/fleet.hpp"
#include "sim/engine/storage_effects.hpp"
#include "sim/plan/repeated_block.hpp"
#include "sim/timeline/timeline.hpp"

namespace orrery {

class OpTable;
struct ClassOps;
struct MessageOwner;

/// How far a rank has come: per stream, how many of its ops have started and how many have ended.
struct RankProgress {
  std::array<std::uint32_t, kNumStreams> started{}, ended{};
};

/// What a block of ops does to storage, in order, wherever it repeats: found where it comes first. Storage that the
/// block alone uses is kept by number; only what it shares with others is looked up per repetition. Blocks of other
/// ranks that do the same have the same script.
struct StorageScript {
  struct Event {
    std::uint32_t op = 0;  // in the block
    bool gives = false;    // what has ended; takes: what starts
  };
  enum class Kind : std::uint8_t { Take, Mark, Give, TakeShared, GiveShared };
  struct Change {
    std::int64_t bytes = 0;
    std::uint32_t op = 0, operand = 0;  // in the block; of the op
    std::uint32_t place = 0;            // number of storage of its own, or of what is shared
    Kind kind = Kind::Take;
    Tier tier = Tier::Device;
    Stream stream = Stream::Compute;
    bool operator==(const Change&) const = default;
  };
  /// Events that follow upon each other, and the changes of them that somebody else can tell.
  struct Stretch {
    std::vector<std::uint32_t> shared;  // of what others use too
    std::vector<std::uint32_t> gives;   // of its own that was taken before the stretch
    std::vector<std::uint32_t> keeps;   // of its own that is there behind the stretch
    std::int64_t takes = 0;             // bytes
    StorageEffects effects;
  };

  std::vector<Change> changes;
  std::vector<std::uint32_t> first_change;  // of each event, and the end
  std::uint32_t num_places = 0, num_shared = 0;
  std::optional<Tier> tier;                              // of all changes; none: of several
  std::unordered_map<std::uint64_t, Stretch> stretches;  // by the first event and the end; never iterated
};

/// The persistent tensors that the ranks of a class hold, in tensor-id order: owners among the operands of its ops, and
/// its scratch.
std::vector<TensorId> resident_tensors(const Plan& plan, ClassId c);

/// Live bytes of each tier of each rank. Persistent tensors are there from the start and stay; executions share those
/// of equal name, tier and size. An op takes storage in operand order when it starts and gives it back in operand order
/// when it has ended; a tensor whose last uses lie on several streams goes with the last of them. Each tier is an arena
/// of its own: that of devices is filled as the options say, the others by OffsetAllocator. What finds no room makes
/// the memory larger: that it does not fit is a result.
class MemoryModel {
 public:
  struct Options {
    bool samples = false;
    AllocatorOptions allocator = {};
    std::function<std::int64_t(RankId)> capacity = {};  // of devices; null: not limited
    bool log = false;                                   // what ranks ask for
  };
  explicit MemoryModel(Options options) : options_{std::move(options)} {}

  /// Before the ops of an execution: its persistent tensors are made where they are missing. Plan, fleet and ops must
  /// outlive the execution.
  void begin(const Plan& plan, const Fleet& fleet, const OpTable& ops, std::uint32_t execution, std::int64_t now_ps);
  /// The op takes its storage. Returns whether a tier has reached a new peak: then `record_peak` is due.
  bool take(std::uint32_t simulated, OpId op, std::int64_t now_ps);
  void record_peak(std::uint32_t simulated, const RankProgress& progress);
  void give(std::uint32_t simulated, OpId op, std::int64_t now_ps);
  /// The same of an op of which it is known whose storage it takes, or gives back.
  bool take(std::uint32_t simulated, OpId op, Stream stream, MessageOwner storage, std::int64_t now_ps);
  void give(std::uint32_t simulated, MessageOwner storage, std::int64_t now_ps);

  /// What the events of a block of this pattern do, and whose storage they share with others in each block of it.
  /// Holds until the next execution begins.
  struct Script {
    StorageScript* script = nullptr;
    std::span<const TensorId> owners;  // block by block: of what is shared, by its number
  };
  Script script(std::uint32_t simulated, const ClassOps& ops, std::uint32_t pattern,
                std::span<const StorageScript::Event> events);
  /// A block that runs on a rank alone from its first event on.
  struct Replayed {
    std::uint32_t simulated = 0;
    OpId first;
    StorageScript* script = nullptr;
    std::span<const TensorId> owners;  // of what is shared
  };
  /// As `take` or `give` of an event.
  bool replay(const Replayed& block, std::size_t event, std::int64_t now_ps);
  /// As `replay` of the events [first, last) where it is known what they come to, because they have been replayed in a
  /// like arena, and no peak is among them. Where it is not, they have to be replayed one by one, and `learn` is to be
  /// told of it.
  bool replay_known(const Replayed& block, std::size_t first, std::size_t last);
  void learn(const Replayed& block, std::size_t first, std::size_t last);
  /// The block goes on by `take` and `give` behind these many events.
  void leave(const Replayed& block, std::size_t events);
  /// After the ops: who owned the peaks, and whatever the plan has not given back.
  void end(std::int64_t now_ps);

  std::vector<Peak> peaks() const;
  std::vector<MemorySample> take_samples() { return std::move(samples_); }
  /// By rank; labels are names of tensors.
  std::map<RankId, AllocationTrace> take_log() { return std::move(log_); }

 private:
  struct TierState {
    std::unique_ptr<Allocator> arena;
    OffsetAllocator* plain = nullptr;  // the same, where it is one
    RankId rank;
    Tier tier = Tier::Device;
    std::int64_t live = 0;
    bool raised = false, fresh = false;  // a new peak in this execution; by the op that is starting
    std::size_t last_sample = SIZE_MAX;
    Peak peak;
    RankProgress at_peak;
  };
  struct RankState {
    std::array<std::int32_t, kNumTiers> tiers{-1, -1, -1, -1, -1};  // in tiers_
    std::vector<std::uint32_t> lists;                               // of persistent tensors that are there, as wholes
    std::vector<std::uint32_t> resident;                            // storage keys, sorted
  };
  struct Live {  // storage of one tensor of one rank
    TensorId owner;
    std::uint32_t logged = 0;  // its number in the log
    std::int64_t offset : 56 = 0;
    std::uint64_t marks_left : 8 = 0;  // one per stream at most

    std::uint64_t key() const { return owner.value; }
    bool is_free() const { return owner.is_none(); }
  };
  static_assert(sizeof(Live) == 16 && kNumStreams < 1 << 8);
  struct Storage {
    std::int64_t bytes = 0;  // rounded up
    Tier tier = Tier::Device;
  };
  /// What copies of a block give back that others have taken.
  struct Given {
    std::vector<std::uint32_t> operands;  // counted in the block, ascending
    std::vector<TensorId> owners;         // of these, copy by copy
  };
  struct ClassTensors {
    std::uint32_t first = 0, count = 0;  // range of tensor ids whose storage its ops take
    std::vector<std::uint8_t> marks;     // per tensor of the range: how many operands give it back, one per stream
    std::vector<TensorId> resident;
    std::uint32_t list = 0;  // of the storage keys of `resident`
    std::map<const RepeatedBlock*, Given> given;
  };

  static constexpr std::size_t kNumTypes = static_cast<std::size_t>(DType::Bool) + 1;  // the last one
  std::int64_t size(TensorId owner) const {
    const Tensor& t = plan_->tensors[owner.index()];
    return sizes_[t.layout.index() * kNumTypes + static_cast<std::size_t>(t.dtype)];
  }
  struct BlockMarks {  // operands of a block that give back what it takes itself: of a range of tensors
    std::uint32_t first = UINT32_MAX, last = 0;
    std::vector<std::uint8_t> own;
  };
  ClassTensors tensors_of(ClassId c, const MovedStretches& stretches);
  BlockMarks marks_of(const RepeatedBlock& block, Given& given) const;
  std::uint32_t key_of(TensorId owner);
  RankState& state(RankId rank);
  TierState& tier(RankState& rank, RankId id, Tier tier);
  void make_resident(std::uint32_t simulated, const ClassTensors& tensors, std::int64_t now_ps);
  std::int64_t place(TierState& t, std::int64_t bytes, Stream stream);
  std::uint32_t log_take(const TierState& t, TensorId owner, Stream stream, std::int64_t now_ps);
  void log_give(const TierState& t, TensorId owner, std::uint32_t block, std::int64_t now_ps);
  std::uint32_t label_of(RankId rank, TensorId owner);
  void change(TierState& t, std::int64_t bytes, std::int64_t now_ps);
  void raise(TierState& t, OpId op);
  bool grow(TierState& t, OpId op, std::int64_t bytes, std::int64_t now_ps);
  std::uint8_t marks_of(std::uint32_t simulated, TensorId owner) const {
    const ClassTensors& c = class_of(simulated);
    return c.marks[owner.value - c.first];
  }
  Storage storage_of(TensorId owner) const { return {size(owner), plan_->tensors[owner.index()].tier}; }
  const ClassTensors& class_of(std::uint32_t simulated) const { return classes_[fleet_->class_of(simulated)]; }
  bool take(std::uint32_t simulated, OpId op, Stream stream, TensorId owner, Storage storage, std::int64_t now_ps);
  void give(std::uint32_t simulated, TensorId owner, Storage storage, std::int64_t now_ps);
  void give_back(std::uint32_t simulated, TensorId owner, Storage storage, std::int64_t now_ps);
  StorageScript::Stretch* stretch(StorageScript& script, std::size_t first, std::size_t last) const;
  StorageScript* script_of(const ClassTensors& tensors, OpId first, std::span<const StorageScript::Event> events);
  void find_owners(const ClassOps& ops, const ClassTensors& tensors, std::uint32_t pattern, const StorageScript& script,
                   std::vector<TensorId>& out) const;
  Live* find_shared(const Replayed& replayed, const StorageScript::Change& c) {
    return live_[replayed.simulated].find(replayed.owners[c.place].value);
  }
  bool find_given(const Replayed& block);
  void take_given_back(const Replayed& block);
  void name_owners(std::uint32_t simulated, TierState& t) const;

  Options options_;
  std::map<RankId, AllocationTrace> log_;
  std::map<std::pair<RankId, std::string>, std::uint32_t> labels_;  // in the log
  std::unordered_map<std::string, std::uint32_t> keys_;  // persistent storage by name, tier and size; never iterated
  std::map<std::vector<std::uint32_t>, std::uint32_t> lists_;
  std::vector<RankState> ranks_;  // by RankId
  std::deque<TierState> tiers_;
  std::vector<MemorySample> samples_;

  const Plan* plan_ = nullptr;  // of the execution that runs
  const Fleet* fleet_ = nullptr;
  std::uint32_t execution_ = 0;
  std::vector<std::int64_t> sizes_;  // per layout of the plan and type, rounded up
  std::vector<ClassTensors> classes_;
  std::vector<OpenTable<Live>> live_;                     // per simulated rank, but for the block that it replays
  std::vector<std::vector<std::int64_t>> replay_places_;  // per simulated rank: of storage of the block it replays

  std::deque<StorageScript> scripts_;  // that differ
  std::map<std::tuple<std::uint32_t, std::uint32_t, const StorageScript*>, std::vector<TensorId>>
      owners_;  // by class, pattern and script

  // Of the stretch that is asked for, and that is learnt from.
  StorageScript::Stretch* stretch_ = nullptr;  // null: nothing is learnt
  std::vector<StorageEffects::Block> given_;   // blocks that it gives back and that were there before
  std::vector<TensorId> inside_;               // that others use, per change of the stretch that gives what it takes
  std::vector<OffsetAllocator::Range> gone_, taken_;
  std::vector<std::uint32_t> passed_;  // changes that give what others use
  std::int64_t refusals_ = 0;
};

}  // namespace orrery
