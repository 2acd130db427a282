// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/plan/last_uses.hpp"
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
  std::string tensor(TensorId t) const { return fmt::format("'{}'", plan_.names[plan_.tensors[t.index()].name]); }

 private:
  const Plan& plan_;
  std::vector<std::string> all_;
};

/// Checks that ops which touch a tensor are ordered, and that its storage is there for them and given back behind them.
///
/// A class is walked in plan order with one vector clock per op: which ops of every stream have ended when it starts.
/// What lives inside of a block alone is checked where the block comes first. A block that repeats it has the same
/// works, dependencies among its ops and uses of operands (`Checker` compares them), so that it is enough that its own
/// tensors stand in for those of the first block one for one, and are touched nowhere else.
class OrderChecker {
 public:
  OrderChecker(const Plan& plan, Problems& problems);

  void check(const RankClass& c);

 private:
  using Clock = std::array<std::uint32_t, kNumStreams>;  // per stream: ops known to have ended, as index + 1

  struct Storage {  // of an owner, in the class being checked
    std::uint16_t epoch = 0;
    bool live : 1 = false, taken : 1 = false;
    std::uint8_t marks = 0, released = 0;  // frees marks in all, at most one per stream, and passed
    std::uint16_t later = 0;               // streams on which a later op uses it: of the walk from the end
  };

  /// The owners that the operands of a block touch, as it was met first.
  struct Pattern {
    static constexpr std::uint32_t kOutside = UINT32_MAX;
    struct Place {
      std::uint32_t local = kOutside;  // number of an owner that lives inside of the block alone
      bool is_first = false;           // where it is touched first
    };
    std::vector<Place> places;  // of operands, in order
    std::uint32_t num_inside = 0;
  };

  Storage& storage(TensorId owner);
  void count_marks(std::span<const Operand> operands);
  void learn(const Stretch& copy);
  std::span<const Operand> outside(const Pattern& pattern, std::size_t first_place, const Op& op);
  void find_wanted(const RankClass& c);
  void walk(const Stretch& s);
  void check_stand_in(std::size_t i, Pattern::Place place, TensorId owner);
  void check_op(std::size_t i, std::span<const Operand> operands);
  void join_dependencies(std::size_t i, Clock& known);
  void check_hazards(std::size_t i, std::span<const Operand> operands, const Clock& known);
  void check_storage(std::size_t i, std::span<const Operand> operands);
  void check_released(const RankClass& c, const std::vector<Stretch>& stretches);
  void walk_back(std::size_t i, std::span<const Operand> operands);

  const Plan& plan_;
  Problems& problems_;
  LastUses uses_;
  std::vector<Storage> storage_;  // per tensor
  std::vector<TensorId> owners_;  // those that the class touches, but for stand-ins
  std::uint16_t epoch_ = 0;
  std::map<OpId, Pattern> patterns_;     // of the class
  std::vector<std::uint32_t> stand_in_;  // of the block being walked: owners by number
  std::vector<Operand> outside_;
  // A stream's clock at its latest op. Knowledge of an op: its stream's, joined with that of its dependencies; kept
  // only for ops that something depends on.
  std::array<Clock, kNumStreams> streams_{};
  std::vector<Clock> ended_;
  std::size_t first_op_ = 0;
  std::vector<std::uint32_t> clock_of_;  // per op of the class: its place in `ended_`
};

}  // namespace orrery
