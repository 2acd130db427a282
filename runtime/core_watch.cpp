// SPDX-License-Identifier: Apache-2.0
#include "runtime/core_watch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>

#include "kernels/host/fixed_work.hpp"
#include "runtime/clock.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kBetween = 4'000'000;  // nanoseconds, at least
constexpr std::chrono::milliseconds kFirstLook{300};

/// How long the fixed work takes on a core that nobody else uses: about the shortest that it took in this process. Not
/// the very shortest: clocks of virtual machines jump now and then.
class Shortest {
 public:
  Shortest() {
    least_.fill(1);
    const auto until = std::chrono::steady_clock::now() + kFirstLook;
    while (std::chrono::steady_clock::now() < until) note(static_cast<float>(kernels::fixed_work()));
  }
  void note(float seconds) {
    const std::lock_guard lock{mutex_};
    if (seconds >= least_.back()) return;
    const auto place = std::upper_bound(least_.begin(), least_.end(), seconds);
    std::move_backward(place, least_.end() - 1, least_.end());
    *place = seconds;
  }
  float seconds() const {
    const std::lock_guard lock{mutex_};
    return least_.back();
  }

 private:
  mutable std::mutex mutex_;
  std::array<float, 32> least_{};  // rising
};

Shortest& shortest() {
  static Shortest s;
  return s;
}

}  // namespace

CoreSample sample_core(std::uint32_t instance) {
  Shortest& least = shortest();
  const auto seconds = static_cast<float>(kernels::fixed_work());
  least.note(seconds);
  return {now_ns(), instance, seconds};
}

bool is_due(const CoreSample& last, std::int64_t now) { return now - last.at_ns >= kBetween; }

double slowed_by(std::span<const CoreSample> samples) {
  const double least = double(shortest().seconds());
  const auto ratio = [&](const CoreSample& s) { return std::max(1.0, double(s.seconds) / least); };
  double sum = 0, all = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const double between = double(samples[i].at_ns - samples[i - 1].at_ns);
    sum += between * (ratio(samples[i - 1]) + ratio(samples[i])) / 2;
    all += between;
  }
  return all > 0 ? sum / all - 1 : 0;
}

}  // namespace orrery
