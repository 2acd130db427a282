// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <span>

#include "gui/core/companion.hpp"
#include "sim/base/options.hpp"

namespace orrery::gui {

/// How the time of a second timeline is laid on the axis of the first one.
enum class Alignment : std::uint8_t {
  Step,   // the starts of each step together: drift inside a step can be seen
  Op,     // the starts of matched ops together: only durations differ
  Clock,  // clocks of the ranks put right by the ends of collectives, then the first step's start
  Manual  // moved by hand
};
std::span<const EnumName<Alignment>> enum_names(Alignment);

/// A rising map of time from straight pieces. Before the first knot and behind the last one it is a shift.
class Warp {
 public:
  struct Knot {
    std::int64_t from = 0, to = 0;
  };
  Warp() = default;
  /// Knots by `from`; those whose `to` falls behind the one before are left out.
  explicit Warp(std::vector<Knot> knots);
  std::int64_t operator()(std::int64_t at) const;

 private:
  std::vector<Knot> knots_;
};

/// The clock of a rank against that of the first rank: t₀ = (1 + skew) · t + offset.
struct ClockFit {
  double offset_ps = 0, skew = 0;
  double residual_ns = 0;  // root mean square over the collectives
  std::uint64_t collectives = 0;
};

struct Aligned {
  std::map<std::uint32_t, Warp> warps;  // by owner id
  double residual_ns = 0;  // root mean square over matched starts (Step, Op, Manual) or collective ends (Clock)
  std::map<std::uint32_t, ClockFit> clocks;
};

/// How the other document's times have to move. `manual_ps` is only looked at for Alignment::Manual.
Aligned align(const Document& main, const Document& other, const Matching& matching, Alignment mode,
              std::int64_t manual_ps);

/// Clocks from the ends of collectives: a collective ends on all ranks at the same instant, or later where a rank is
/// late to notice. Least squares of the ends against those of the first rank; then as little further as is needed so
/// that no collective ends on one of the two before the other one has begun it.
std::map<std::uint32_t, ClockFit> fit_clocks(const Document& document);

/// Errors of the main document's events: ln(measured / predicted); where neither or both are measured, ln(other /
/// main).
EventErrors errors_of(const Document& main, const Document& other, const Matching& matching);

/// All of it: matches, aligns, and makes the error strips.
struct CompareOptions {
  Alignment alignment = Alignment::Step;
  std::int64_t manual_ps = 0;
  bool operator==(const CompareOptions&) const = default;
};
std::unique_ptr<Companion> compare_documents(const Document& main, Document other, const CompareOptions& options);
/// The same pair aligned another way.
void realign(const Document& main, Companion& other, const CompareOptions& options);

/// Draws another channel of errors: time above all is scaled so that one op in twenty is beyond kErrorRange.
void show_errors(const Document& main, Companion& other, ErrorChannel channel);

/// What one op of a pair is off by, after alignment.
struct OpError {
  double ratio = 0;                // ln(measured / predicted)
  std::int64_t absolute_ps = 0;    // other − main
  std::int64_t start_skew_ps = 0;  // start of the other − start of the main one
  std::int64_t gap_ps = 0;         // idle before it on its lane, other − main
  std::int64_t overlap_ps = 0;     // of compute with communication of the rank while it ran, other − main
};
OpError op_error(const Document& main, const Companion& other, EventIndex e);

}  // namespace orrery::gui
