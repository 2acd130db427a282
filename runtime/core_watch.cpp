// SPDX-License-Identifier: Apache-2.0
#include "runtime/core_watch.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "kernels/host/fixed_work.hpp"
#include "runtime/clock.hpp"
#include "runtime/quiet_core.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kBetween = 4'000'000;  // nanoseconds, at least
constexpr std::chrono::milliseconds kFirstLook{300};

/// Of the fixed work, from all samples of this process.
QuietCore& quiet_core() {
  static QuietCore q;
  static std::once_flag looked;
  std::call_once(looked, [] {
    const auto until = std::chrono::steady_clock::now() + kFirstLook;
    while (std::chrono::steady_clock::now() < until) q.note(kernels::fixed_work());
  });
  return q;
}

}  // namespace

CoreSample sample_core(std::uint32_t instance) {
  QuietCore& quiet = quiet_core();
  const auto seconds = static_cast<float>(kernels::fixed_work());
  quiet.note(seconds);
  return {now_ns(), instance, seconds};
}

bool is_due(const CoreSample& last, std::int64_t now) { return now - last.at_ns >= kBetween; }

double slowed_by(std::span<const CoreSample> samples) {
  const double quiet = quiet_core().seconds();
  const auto ratio = [&](const CoreSample& s) { return double(s.seconds) / quiet; };
  double sum = 0, all = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const double between = double(samples[i].at_ns - samples[i - 1].at_ns);
    sum += between * (ratio(samples[i - 1]) + ratio(samples[i])) / 2;
    all += between;
  }
  return all > 0 ? std::max(0.0, sum / all - 1) : 0;
}

}  // namespace orrery
