// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/timeline/timeline.hpp"

namespace orrery {

/// One execution of a plan. A measured one starts with its first op: what the host prepares between two steps, reading
/// and writing inputs, is no part of either.
struct InstanceTime {
  std::uint32_t plan = 0;
  std::int64_t start_ps = 0, end_ps = 0;
  double seconds() const { return double(end_ps - start_ps) * 1e-12; }
};
std::vector<InstanceTime> instance_times(const Timeline& timeline);

/// The instances that stand for the run: decode steps of a generation, else all; without the first one where there are
/// several, since caches and pages are cold in it.
std::vector<std::uint32_t> steady_instances(const Timeline& timeline);

/// These instances (rising numbers) one right after another, from 0. Peaks are left out.
Timeline packed(const Timeline& timeline, const std::vector<std::uint32_t>& instances);

/// All instances, without the gaps between them; peaks stay.
Timeline without_gaps(const Timeline& timeline);

/// Of a speculative generation: the seconds of its rounds, each from the drafter's first pass to the end of the
/// verification; without the first one where there are several.
std::vector<double> round_seconds(const Timeline& timeline);

double mean_seconds(const std::vector<InstanceTime>& times, const std::vector<std::uint32_t>& instances);

}  // namespace orrery
