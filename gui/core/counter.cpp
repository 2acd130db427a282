// SPDX-License-Identifier: Apache-2.0
#include "gui/core/counter.hpp"

#include <algorithm>

namespace orrery::gui {
namespace {

/// So many samples share one of the finest buckets, at most about twice as many.
constexpr std::size_t kSamplesPerBucket = 4;

}  // namespace

void Counter::sum_up() {
  most = 0;
  for (const double v : value) most = std::max(most, v);
  if (at.size() < 2 * kSamplesPerBucket) return;
  sums = Buckets<Sum>{{at.front(), at.back()}, at.size() / kSamplesPerBucket};
  const std::span<Sum> finest = sums.finest();
  const double width = sums.width();
  for (std::size_t i = 0; i + 1 < at.size(); ++i)
    sums.each_bucket({at[i], at[i + 1]}, [&](std::size_t b, std::int64_t time) {
      finest[b].mean += static_cast<float>(value[i] * double(time) / width);
      if (time > 0) finest[b].most = std::max(finest[b].most, static_cast<float>(value[i]));
    });
  sums.sum_up([](const Sum& a, const Sum& b) { return Sum{(a.mean + b.mean) / 2, std::max(a.most, b.most)}; });
}

void Counter::sample(TimeRange time, std::span<float> means, std::span<float> peaks) const {
  std::fill(means.begin(), means.end(), 0.0f);
  std::fill(peaks.begin(), peaks.end(), 0.0f);
  const double per_pixel = double(time.length()) / double(means.size());
  const Buckets<Sum>::Level level = sums.level(per_pixel);
  if (level.cells.empty()) return sample_exactly(time, means, peaks, 0);
  const auto share = static_cast<float>(std::ldexp(1.0, level.shift) / per_pixel / kWholeBucket);
  each_pixel(level, time, static_cast<int>(means.size()), [&](int x, const UnderPixel<Sum>& under) {
    float mean = 0, peak = 0;
    under.each([&](const Sum& s, std::uint32_t part) {
      mean += s.mean * static_cast<float>(part);
      peak = std::max(peak, s.most);
    });
    means[static_cast<std::size_t>(x)] = mean * share;
    peaks[static_cast<std::size_t>(x)] = peak;
  });
  // Behind the last sample its value stays.
  const double last = double(at.back() - time.begin) / per_pixel;
  if (last < double(means.size())) sample_exactly(time, means, peaks, static_cast<std::size_t>(std::max(0.0, last)));
}

void Counter::sample_exactly(TimeRange time, std::span<float> means, std::span<float> peaks, std::size_t from) const {
  const double per_pixel = double(time.length()) / double(means.size());
  const auto edge = [&](std::size_t x) { return time.begin + static_cast<std::int64_t>(double(x) * per_pixel); };
  std::int64_t now = edge(from);
  auto next = static_cast<std::size_t>(std::upper_bound(at.begin(), at.end(), now) - at.begin());
  for (std::size_t x = from; x < means.size(); ++x) {
    const std::int64_t until = edge(x + 1), begin = now;
    double sum = 0, peak = 0;
    while (now < until) {
      const std::int64_t end = next < at.size() ? std::min(until, at[next]) : until;
      const double v = next > 0 ? value[next - 1] : 0;
      sum += v * double(end - now);
      peak = end > now ? std::max(peak, v) : peak;
      now = end;
      while (next < at.size() && at[next] <= now) ++next;
    }
    if (until > begin) {
      means[x] = static_cast<float>(sum / double(until - begin));
      peaks[x] = static_cast<float>(peak);
    } else if (x > from) {
      means[x] = means[x - 1];
      peaks[x] = peaks[x - 1];
    }
  }
}

}  // namespace orrery::gui
