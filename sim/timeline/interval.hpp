// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "sim/timeline/critical_path.hpp"

namespace orrery {

/// How far one op's duration may be off, as standard deviations of ln(measured/predicted).
struct SpanDeviation {
  float independent = 0;    // of this op alone
  float shared = 0;         // of all ops of the group together: the fit's own uncertainty
  std::uint32_t group = 0;  // ops with the same number share their `shared` error
  float common = 0;         // of all ops of all groups together: what memory takes
};

/// A prediction with the range that holds the truth nine times out of ten.
struct Interval {
  Seconds value, low, high;
  double deviation = 0;  // one standard deviation of ln(truth/value)
};

/// The interval of the makespan T from errors of the ops on the critical path:
///
///   σ²·T² = Σ_i (t_i·independent_i)² + Σ_g (Σ_{i in g} t_i·shared_i)² + (Σ_i t_i·common_i)² + (T·whole)²,
///   low, high = T·exp(∓1.645·σ)
///
/// t_i is the time of op i on the path; errors of one group add up before they are squared. `whole` is what errors of
/// all of the plan share (order, overlap, what no op model sees). Leaves out that another path may become critical, so
/// it is narrow where paths tie. `deviations` has one entry per segment of the path; those of gaps do not count.
Interval makespan_interval(const Timeline& timeline, const CriticalPath& path,
                           std::span<const SpanDeviation> deviations, double whole);

/// The same for a value whose deviation is known.
Interval log_normal_interval(Seconds value, double deviation);

}  // namespace orrery
