// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/plan/last_uses.hpp"
#include "sim/plan/repeated_block.hpp"
#include "sim/plan/stretches.hpp"

namespace orrery {

/// What is wrong with a plan, up to a number of problems that a reader can use.
class Problems {
 public:
  explicit Problems(const Plan& plan) : plan_{plan} {}

  template <class... A>
  void add(fmt::format_string<A...> text, A&&... args) {
    constexpr std::size_t kMost = 20;
    if (all_.size() < kMost) all_.push_back(fmt::format(text, std::forward<A>(args)...));
  }
  bool none() const { return all_.empty(); }
  std::vector<std::string> take() { return std::move(all_); }

  std::string op(std::size_t i) const { return fmt::format("op {} '{}'", i, plan_.name_of(plan_.ops[i])); }
  std::string tensor(TensorId t) const { return fmt::format("'{}'", plan_.name_of(t)); }

 private:
  const Plan& plan_;
  std::vector<std::string> all_;
};

/// Checks that ops which touch a tensor are ordered, and that its storage is there for them and given back behind them.
///
/// A class is walked in plan order with one vector clock per op: which ops of every stream have ended when it starts.
/// What lives inside of a block alone is checked where the block comes first. A block that repeats it has the same
/// works, dependencies among its ops and uses of tensors moved by as much (`Checker` compares them), so that it is
/// enough that nothing else touches its own. A repetition that is not moved so is walked like any other ops.
///
/// Persistent storage that all copies touch alike and on one stream alone is in order among them; its last uses are
/// looked up when other ops touch it, and the copies behind those are checked against them once.
class OrderChecker {
 public:
  /// `blocks`: what repetitions are like; `order`: of the ops; as far as classes have been compared.
  OrderChecker(const Plan& plan, const std::map<OpId, RepeatedBlock>& blocks, const OpOrder& order, Problems& problems)
      : plan_{plan}, blocks_{blocks}, order_{order}, problems_{problems} {}

  /// `touched`: the owners that its ops touch are among these.
  void check(const RankClass& c, TensorRange touched);

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  using Clock = std::array<std::uint32_t, kNumStreams>;  // per stream: ops known to have ended, as index + 1

  struct Storage {  // of an owner, in the class being checked
    std::uint16_t epoch = 0;
    bool live : 1 = false, taken : 1 = false;
    std::uint8_t marks = 0, released = 0;  // frees marks in all, at most one per stream, and passed
    std::uint16_t later = 0;               // streams on which a later op uses it: of the walk from the end
  };

  /// Some operands of a block, counted in it.
  struct Choice {
    std::vector<std::uint32_t> ops;    // that have any, counted in the block
    std::vector<std::uint32_t> first;  // of each of these, into `operands`, and the end
    std::vector<std::uint32_t> operands;
  };
  /// What the operands of a block touch, as it was met first.
  struct Pattern {
    Choice stored;                 // operands that do not live inside of the block alone, nor in persistent storage
    Choice persistent;             // in persistent storage, which they neither take nor give back
    std::vector<TensorId> inside;  // owners that live inside of it alone
    bool is_calm = false;          // copies are in order with each other in all of `persistent`
    bool is_due = true;            // the next copy is to be checked against others in it
    std::uint32_t latest = kNone;  // the first op of the last copy that has not been
  };
  /// How copies of a pattern use an owner: the last op that writes it and the last that reads it since.
  struct CalmUse {
    Pattern* pattern = nullptr;
    Stream stream = Stream::Compute;
    std::uint32_t writer = kNone, reader = kNone;  // counted in the block
  };
  /// Ops of the class, and whose pattern they follow: none: they are walked op by op.
  struct Part : Stretch {
    Pattern* pattern = nullptr;
    bool is_same = false;  // in all persistent storage that it touches
  };

  TensorId place_of(TensorId owner) const { return TensorId{std::size_t{owner.value - first_tensor_}}; }
  Storage& known_storage(TensorId owner) { return storage_[place_of(owner).index()]; }
  Storage& storage(TensorId owner);
  void count_marks(std::span<const Operand> operands);
  std::vector<Part> parts_of(const RankClass& c);
  Pattern learn(OpId first, std::size_t num_ops) const;
  static void gather(const Choice& choice, const Operand* operands, std::vector<Operand>& out);
  void gather_stored(const Part& part);
  static std::span<const Operand> chosen(const Choice& choice, const std::vector<Operand>& gathered, std::size_t n);
  bool is_same(const Part& part, OpId like) const;
  void find_calm(const std::vector<Part>& parts);
  void add_calm(Pattern& pattern, OpId like);
  void disturb(TensorId owner);
  void find_wanted(const RankClass& c);
  void walk(const Part& part);
  void check_inside(const Part& part);
  void check_op(std::size_t i, std::span<const Operand> stored, std::span<const Operand> persistent, bool is_calm);
  void join_dependencies(const WaitingOp& wait, Clock& known);
  void check_hazard(std::size_t i, Operand o, const Clock& known);
  void check_storage(std::size_t i, std::span<const Operand> operands);
  void check_released(const RankClass& c, const std::vector<Part>& parts);
  void walk_back(std::size_t i, std::span<const Operand> operands);

  const Plan& plan_;
  const std::map<OpId, RepeatedBlock>& blocks_;
  const OpOrder& order_;
  Problems& problems_;
  std::uint32_t first_tensor_ = 0;  // that the class may touch: each is known by its place behind it
  LastUses uses_;
  std::vector<Storage> storage_;
  std::vector<TensorId> owners_;  // those that the class touches, but for what lives inside of copies
  std::uint16_t epoch_ = 0;
  std::map<OpId, Pattern> patterns_;  // of the class
  std::map<TensorId, std::vector<CalmUse>> calm_;
  std::vector<Operand> stored_, lasting_;  // of a part that follows a pattern
  // A stream's clock at its latest op. Knowledge of an op: its stream's, joined with that of its dependencies; kept
  // only for ops that something depends on.
  std::array<Clock, kNumStreams> streams_{};
  std::vector<Clock> ended_;
  std::size_t first_op_ = 0;
  std::vector<std::uint32_t> clock_of_;  // per op of the class: its place in `ended_`
  std::vector<std::uint8_t> is_seen_;    // per op of the class: it comes after another one, or is one of those
  std::span<const WaitingOp> to_wait_;   // those of the class that are not checked yet
};

}  // namespace orrery
