// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "gui/core/counter.hpp"
#include "sim/base/random.hpp"

using namespace orrery;
using namespace orrery::gui;

TEST_CASE("mean and maximum of a counter are those of its samples, however many lie under a pixel", "[gui]") {
  Counter c;
  Random random{3};
  for (std::int64_t at = 100; c.at.size() < 1000; at += 1 + static_cast<std::int64_t>(random.below(50))) {
    c.at.push_back(at);
    c.value.push_back(double(random.below(1000)));
  }
  c.sum_up();
  const auto by_hand = [&](std::int64_t from, std::int64_t to) {
    double sum = 0, most = 0;
    for (std::size_t i = 0; i < c.at.size(); ++i) {
      const std::int64_t end = i + 1 < c.at.size() ? c.at[i + 1] : INT64_MAX;
      const std::int64_t overlap = std::min(to, end) - std::max(from, c.at[i]);
      if (overlap <= 0) continue;
      sum += c.value[i] * double(overlap);
      most = std::max(most, c.value[i]);
    }
    return std::pair{sum / double(to - from), most};
  };
  for (const std::int64_t step : {7, 500, 3000, 30'000}) {
    const bool is_exact = c.sums.level(double(step)).cells.empty();
    CHECK(is_exact == (step == 7));
    std::vector<float> means(static_cast<std::size_t>(c.at.back() / step) + 3), peaks(means.size());
    const TimeRange time{0, step * std::ssize(means)};
    c.sample(time, means, peaks);
    double sum = 0;
    for (std::size_t x = 0; x < means.size(); ++x) {
      const auto from = static_cast<std::int64_t>(x) * step, to = from + step;
      sum += double(means[x]) * double(step);
      if (from > c.at.back() - step || is_exact) {
        CHECK(means[x] == Approx(by_hand(from, to).first));
        CHECK(peaks[x] == by_hand(from, to).second);
        continue;
      }
      // Buckets at its edges reach out of the pixel by less than the pixel.
      CHECK(peaks[x] >= by_hand(from, to).second);
      CHECK(peaks[x] <= by_hand(std::max<std::int64_t>(0, from - step), to + step).second);
    }
    // A bucket that two pixels share counts as even: what that shifts over the last pixel is less than a pixel.
    CHECK(sum == Approx(by_hand(0, time.end).first * double(time.end)).margin(0.1 * c.most * double(step)));
  }
}
