// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/sweep/sweep_axis.hpp"

namespace orrery {

/// What a point has to be: that it fits, and, unless `metric` is empty, that this value of its result is at least, or
/// at most, so much.
struct Condition {
  std::string metric;
  bool is_least = true;
  double bound = 0;
  bool is_part = false;  // `bound` is a part of the better one of the values at both ends
  std::string text;      // as it was written
};
/// "tokens_per_second>=95%", "step_time<=10 s", "peak_memory<=70 GiB", "mfu>=0.4", "fits". Throws UserError.
Condition parse_condition(const std::string& text);

/// Whether a result meets a condition. `better`: the value at the better end. Throws UserError where the result has no
/// such value.
bool meets(const Condition& condition, const nlohmann::json& result, double better);
/// The better value of two results, of which some may not fit; 0 where none does.
double better_of(const Condition& condition, const std::vector<const nlohmann::json*>& results);

/// A key and the ends between which it is looked where a condition stops to hold.
struct BisectedKey {
  std::string key;
  SweptRange range;
  double step = 0;  // of the values that are tried, from the first end on; 0: any, told to 1 % of it
};
/// "KEY=FROM,TO" or "KEY=FROM,TO,STEP"; whole numbers without a unit have a step of 1. Throws UserError.
BisectedKey parse_bisection(const std::string& text);

/// Narrows the range of a key down to two neighbours, at one of which a condition holds and at the other not, from the
/// end at which it holds. Where it changes several times, the first change from there that was seen counts.
class Boundary {
 public:
  enum class State { Open, Found, Everywhere, Nowhere };

  explicit Boundary(const BisectedKey& key);

  State state() const { return state_; }
  /// Values to look at next: first both ends, then up to `most` between; none unless it is open.
  std::vector<double> next(std::size_t most) const;
  /// What was seen at all values that `next` gave.
  void tell(const std::map<double, bool>& seen);

  /// The last value at which the condition holds, and the next one; when found.
  double holds() const { return holds_; }
  double fails() const { return fails_; }
  /// Whether it holds again behind.
  bool changes_again() const { return changes_again_; }

 private:
  /// The value at a part of the way between the two, or nothing that is between.
  std::optional<double> between(double part) const;
  bool is_narrow() const;

  BisectedKey key_;
  State state_ = State::Open;
  bool has_ends_ = false, changes_again_ = false;
  double holds_ = 0, fails_ = 0;
};

}  // namespace orrery
