// SPDX-License-Identifier: Apache-2.0
#include "runtime/core_watch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>

#include "kernels/host/fixed_work.hpp"
#include "runtime/clock.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kBetween = 4'000'000;  // nanoseconds, at least
constexpr std::chrono::milliseconds kFirstLook{300};

/// How long the fixed work takes on a core that nobody else uses: the middle of the samples of this process that are
/// about as short as the shortest ones. Not the very shortest themselves: clocks of virtual machines jump now and then,
/// and a quiet core scatters by some percent.
class QuietCore {
 public:
  QuietCore() {
    const auto until = std::chrono::steady_clock::now() + kFirstLook;
    while (std::chrono::steady_clock::now() < until) note(static_cast<float>(kernels::fixed_work()));
  }
  void note(float seconds) {
    const double step = std::log(double(seconds) / kShortest) / kStep;
    const std::lock_guard lock{mutex_};
    ++counts_[static_cast<std::size_t>(std::clamp(step, 0.0, double(kSteps - 1)))];
  }
  double seconds() const {
    const std::lock_guard lock{mutex_};
    std::size_t first = 0, below = counts_[0];
    while (below < kOutliers && first + 1 < kSteps) below += counts_[++first];
    const std::size_t end = std::min(kSteps, first + kQuietSteps);
    const auto begin = counts_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto all = std::accumulate(begin, counts_.begin() + static_cast<std::ptrdiff_t>(end), std::size_t{0});
    std::size_t middle = first;
    for (std::size_t sum = counts_[first]; 2 * sum < all; sum += counts_[++middle]) {
    }
    return kShortest * std::exp(kStep * (double(middle) + 0.5));
  }

 private:
  static constexpr double kShortest = 1e-6, kStep = 0.0025;  // seconds, and the steps of its logarithm: up to 1 ms
  static constexpr std::size_t kSteps = 2800, kQuietSteps = 32, kOutliers = 32;  // 8 %

  mutable std::mutex mutex_;
  std::array<std::size_t, kSteps> counts_{};  // samples per step
};

QuietCore& quiet_core() {
  static QuietCore q;
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
