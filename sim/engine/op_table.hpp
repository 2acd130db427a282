// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "sim/base/pages.hpp"
#include "sim/base/unset_vector.hpp"
#include "sim/engine/cost_table.hpp"
#include "sim/engine/fleet.hpp"
#include "sim/plan/repeated_block.hpp"

namespace orrery {

/// Waits of the host: for all ops before it, or for what it reads.
enum class OpKind : std::uint8_t { Single, Wait, WaitToRead, Collective, Send, Recv };
constexpr bool is_wait(OpKind k) { return k == OpKind::Wait || k == OpKind::WaitToRead; }
constexpr bool is_point_to_point(OpKind k) { return k == OpKind::Send || k == OpKind::Recv; }

/// An op as the inner loop needs it: 16 bytes, shared by all ranks of its class, stored stream by stream, so that a
/// rank's progress on a stream is one index and "has that op ended?" is one comparison.
struct EngineOp {
  std::uint32_t op = 0;         // in its class, in plan order
  std::uint32_t work = 0;       // in Plan::works; of a communication: in `calls`
  std::uint32_t first_dep = 0;  // among all dependencies; of an op with only one: that Dependency itself
  std::uint16_t num_deps = 0;
  OpKind kind = OpKind::Single;
  std::uint8_t storage = 0;  // kTakes, kGives
};
static_assert(sizeof(EngineOp) == 16);
constexpr std::uint8_t kTakes = 1, kGives = 2;

/// Whose storage a message takes or gives back; none where that is of several. What there is to know of its size is
/// known of the first that is like it: there are few of those.
struct MessageOwner {
  TensorId owner, like;
};

/// A collective, send or receive: the how-manieth of its class on its communicator, or with its partner and tag.
struct Call {
  std::uint32_t work = 0, sequence = 0;
  MessageOwner storage;
};

/// An earlier op of another stream that must have ended: its record and its stream.
class Dependency {
 public:
  Dependency() = default;
  Dependency(std::uint32_t record, Stream stream) : bits_{record | static_cast<std::uint32_t>(stream) << kRecordBits} {}
  static Dependency from_bits(std::uint32_t bits) {
    Dependency d;
    d.bits_ = bits;
    return d;
  }
  std::uint32_t bits() const { return bits_; }
  std::uint32_t record() const { return bits_ & ((1u << kRecordBits) - 1); }
  std::uint32_t stream() const { return bits_ >> kRecordBits; }

 private:
  static constexpr int kRecordBits = 28;
  static_assert(kNumStreams <= 1 << (32 - kRecordBits));
  std::uint32_t bits_ = 0;
};

/// Blocks of ops of a class that repeat others.
struct OpBlocks {
  struct Instance {
    std::uint32_t first_op = 0, num_ops = 0;  // in its class
    std::uint32_t pattern = 0, number = 0;    // the how-manieth of its pattern
    std::array<std::uint32_t, kNumStreams> first_record{};
    std::uint32_t first_wait = 0, num_waits = 0;  // into `waits`
  };
  /// An op of a block, on a stream, comes after another one that lies before the block, or is a message.
  struct Wait {
    Dependency on;
    Stream of = Stream::Compute;
  };
  struct Pattern {
    std::array<std::uint32_t, kNumStreams> count{};  // records on each stream
    std::uint32_t instances = 0;
  };
  std::vector<Instance> instances;  // in order
  std::vector<Wait> waits;
  std::vector<Pattern> patterns;  // instances of one do the same
};

/// The ops of one class.
struct ClassOps {
  std::array<std::uint32_t, kNumStreams + 1> first_record{};  // of each stream, and the end
  std::uint32_t first_op = 0, num_ops = 0;
  std::vector<std::uint32_t> waits;  // ops for which the host waits, in order
  OpBlocks blocks;
  MovedStretches stretches;  // of the plan
};

/// When the host has an op ready, per class and device kind.
///   ≥ 0: from when the host could enqueue again, the time until the op may start;  < 0: the host does the op itself,
///   after −value − 1 of overhead.
class HostSchedule {
 public:
  static constexpr std::int64_t kNever = INT64_MAX / 2;

  /// Every op is ready at once.
  bool is_empty() const { return runs_.empty(); }
  /// Of an op, counted in its class.
  std::int64_t ready_ps(std::uint32_t op) const;
  /// From then on all are; kNever where the host does an op itself.
  std::int64_t all_ready_ps() const { return all_ready_ps_; }
  std::size_t bytes() const { return ready_ps_.capacity() * sizeof(std::int64_t) + runs_.capacity() * sizeof(Run); }

  /// The next op of the class.
  void add(std::uint32_t op, std::int64_t ready_ps);
  /// The next ops of the class are ready like those from `like` on, each so much later; the last of those at
  /// `latest_ps`.
  void add_like(std::uint32_t op, std::uint32_t like, std::int64_t later_ps, std::int64_t latest_ps);

 private:
  struct Run {
    std::uint32_t first_op = 0, place = 0;  // into `ready_ps_`
    std::int64_t later_ps = 0;
    bool is_like = false;  // others
  };
  const Run& run_of(std::uint32_t op) const;

  std::vector<std::int64_t> ready_ps_;  // of ops that are not like others
  std::vector<Run> runs_;               // by first op
  std::int64_t all_ready_ps_ = 0;
};

/// All ops of a plan in the form that an execution runs.
class OpTable {
 public:
  OpTable(const Plan& plan, const Fleet& fleet, CostTable& costs);

  const ClassOps& of_class(std::uint32_t c) const { return classes_[c]; }
  const EngineOp& operator[](std::uint32_t record) const { return records_[record]; }
  /// Starts to load an op and the one after it in its stream.
  void prefetch(std::uint32_t record) const { __builtin_prefetch(records_.data() + record + 1); }
  Dependency dep(const EngineOp& op, std::uint32_t i) const {
    return op.num_deps == 1 ? Dependency::from_bits(op.first_dep) : deps_[op.first_dep + i];
  }
  const Call& call(const EngineOp& r) const { return calls_[r.work]; }
  /// Of a class on a kind of device.
  const HostSchedule& schedule(std::uint32_t c, std::uint32_t kind) const { return schedules_[c * num_kinds_ + kind]; }
  std::size_t bytes() const;

 private:
  std::vector<WorkId> works_of(const Plan& plan, std::size_t c);
  void add_class(const Plan& plan, std::size_t c);
  void make_room(const Plan& plan, ClassOps& out);
  void add_op(const Plan& plan, ClassOps& out, std::uint32_t i);
  void add_block(const Plan& plan, ClassOps& out, OpBlocks::Instance& block, const MovedStretches::Part& part);
  void complete(const Plan& plan, ClassOps& out, const Op& op, EngineOp& record, MessageOwner storage);
  void find_partners(const Plan& plan);
  MessageOwner named_owner(const Plan& plan, const Op& op, const EngineOp& record);
  void add_call(EngineOp& record, WorkId work, MessageOwner storage);
  void add_schedule(const Plan& plan, std::size_t c, std::uint32_t kind, const CostTable& costs);

  std::vector<ClassOps> classes_;
  UnsetVector<EngineOp> records_;
  std::vector<Dependency> deps_;
  std::vector<Call> calls_;
  std::vector<HostSchedule> schedules_;  // class-major, one per kind
  std::uint32_t num_kinds_ = 1;
  PagesAhead ahead_;                               // while building: of `records_`
  std::vector<std::size_t> last_user_;             // while building: per work, the last class that has used it
  std::vector<std::uint32_t> place_;               // while building: record of each op of the class
  std::array<std::uint32_t, kNumStreams> next_{};  // while building a class: the next record of each stream
  std::vector<OpKind> kinds_;                      // while building: per work
  std::vector<std::uint32_t> partners_;            // while building: per work of a call, a number for whom it is with
  std::vector<std::uint32_t> counts_;              // while building a class: calls so far by that number
  std::map<std::tuple<LayoutId, DType, Tier>, TensorId> likes_;  // while building: the first owner of its kind
};

}  // namespace orrery
