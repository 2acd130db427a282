// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace orrery {

/// How long a fixed work took on a core at some time.
struct CoreSample {
  std::int64_t at_ns = 0;
  std::uint32_t instance = 0;  // the execution that it belongs to
  float seconds = 0;
};

/// One more sample, of the calling thread: 14 µs; 130 µs where somebody else works on the same core, or where its
/// units of wide vectors had fallen asleep: they are awake behind it.
CoreSample sample_core(std::uint32_t instance);

/// Whether a work next to a sample is due another one.
bool is_due(const CoreSample& last, std::int64_t now_ns);

/// Seconds that the fixed work takes on a core that nobody else uses: what it was said to take, else what it took while
/// this process first asked, for 0.3 s.
double quiet_core();
/// Says it from now on, such as what it took when this computer was calibrated; 0: nothing is known of it.
void expect_quiet_core(double seconds);

/// How much longer the fixed work took, on average over the time from the first to the last of these samples, in order,
/// than on a quiet core: 0.3 for 30 %. It does so where something else uses the core, such as another virtual machine
/// whose thread shares it, and where its clock is slower; below 0 where that is faster. Of fewer than two: 0.
double slowed_by(std::span<const CoreSample> samples);

/// The same by the samples, in order, from 5 ms before some time to 5 ms behind it, as clocks stay what they are for 4
/// ms behind what has slowed them; where there is none, by the last one before that, else the first. Of no samples: 0.
double slowed_around(std::span<const CoreSample> samples, std::int64_t start_ns, std::int64_t end_ns);

}  // namespace orrery
