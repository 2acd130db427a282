// SPDX-License-Identifier: Apache-2.0
#include "runtime/core_watch.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/host/fixed_work.hpp"
#include "runtime/clock.hpp"
#include "runtime/quiet_core.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kBetween = 4'000'000;  // nanoseconds, at least
constexpr std::chrono::milliseconds kFirstLook{300};

// Units of wide vectors fall asleep: a Cascade Lake that did nothing of 512 bits for 0.7 ms (its copies of memory do
// not) takes 2.8 times as long for the fixed work for 22 µs, then stops for 10, then takes 1.4 times as long until 65
// µs are over. Licences of its clock: T. Downs, "Gathering Intel on Intel AVX-512 Transitions", 2020.
constexpr double kAsleep = 1.1;            // times a quiet core
constexpr std::int64_t kWaking = 120'000;  // nanoseconds

/// What was said of a quiet core; 0: nothing.
std::atomic<double>& expected() {
  static std::atomic<double> seconds{0};
  return seconds;
}

double first_look() {
  QuietCore quiet;
  const auto until = std::chrono::steady_clock::now() + kFirstLook;
  while (std::chrono::steady_clock::now() < until) quiet.note(kernels::fixed_work());
  return quiet.seconds();
}

}  // namespace

double quiet_core() {
  if (const double seconds = expected(); seconds > 0) return seconds;
  static const double looked = first_look();
  return looked;
}

void expect_quiet_core(double seconds) { expected() = seconds; }

CoreSample sample_core(std::uint32_t instance) {
  const double quiet = quiet_core();
  const std::int64_t began = now_ns();
  double seconds = kernels::fixed_work();
  if (seconds > kAsleep * quiet)
    while (now_ns() - began < kWaking) seconds = kernels::fixed_work();
  return {now_ns(), instance, static_cast<float>(seconds)};
}

bool is_due(const CoreSample& last, std::int64_t now) { return now - last.at_ns >= kBetween; }

double slowed_by(std::span<const CoreSample> samples) {
  const double quiet = quiet_core();
  const auto ratio = [&](const CoreSample& s) { return double(s.seconds) / quiet; };
  double sum = 0, all = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const double between = double(samples[i].at_ns - samples[i - 1].at_ns);
    sum += between * (ratio(samples[i - 1]) + ratio(samples[i])) / 2;
    all += between;
  }
  return all > 0 ? sum / all - 1 : 0;
}

double slowed_around(std::span<const CoreSample> samples, std::int64_t start_ns, std::int64_t end_ns) {
  constexpr std::int64_t kAround = 5'000'000;  // nanoseconds
  if (samples.empty()) return 0;
  const auto earlier = [](const CoreSample& s, std::int64_t at) { return s.at_ns < at; };
  auto first = std::lower_bound(samples.begin(), samples.end(), start_ns - kAround, earlier);
  const auto last = std::lower_bound(first, samples.end(), end_ns + kAround, earlier);
  if (first == last && first != samples.begin()) --first;  // none: the last one before it
  double sum = 0;
  std::size_t n = 0;
  for (auto s = first; s != samples.end() && (s < last || n == 0); ++s, ++n) sum += double(s->seconds);
  return sum / double(n) / quiet_core() - 1;
}

}  // namespace orrery
