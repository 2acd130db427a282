// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/indices.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

std::int64_t t5_bucket(std::int64_t relative, std::int64_t buckets, std::int64_t max_distance, bool bidirectional) {
  std::int64_t first = 0, distance = -relative;
  if (bidirectional) {
    buckets /= 2;
    if (relative > 0) first = buckets;
    distance = std::abs(relative);
  }
  distance = std::max<std::int64_t>(distance, 0);
  const std::int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const double ratio = std::log(double(distance) / double(exact)) / std::log(double(max_distance) / double(exact));
  return first + std::min(buckets - 1, exact + static_cast<std::int64_t>(ratio * double(buckets - exact)));
}

/// The region of the unshifted grid that a coordinate of the shifted one comes from.
std::int64_t region(std::int64_t x, std::int64_t side, std::int64_t window, std::int64_t shift) {
  if (x < side - window) return 0;
  return x < side - shift ? 1 : 2;
}

}  // namespace

std::vector<double> t5_buckets(std::int64_t first, std::int64_t queries, std::int64_t keys, std::int64_t buckets,
                               std::int64_t max_distance, bool bidirectional) {
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(queries * keys));
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = 0; j < keys; ++j)
      out.push_back(double(t5_bucket(j - (first + i), buckets, max_distance, bidirectional)));
  return out;
}

std::vector<double> swin_offsets(std::int64_t window) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < window * window; ++i)
    for (std::int64_t j = 0; j < window * window; ++j) {
      const std::int64_t dy = i / window - j / window + window - 1, dx = i % window - j % window + window - 1;
      out.push_back(double(dy * (2 * window - 1) + dx));
    }
  return out;
}

std::vector<double> swin_partition(std::int64_t batch, std::int64_t side, std::int64_t window, std::int64_t shift) {
  std::vector<double> out;
  const std::int64_t windows = side / window;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t w = 0; w < windows * windows; ++w)
      for (std::int64_t p = 0; p < window * window; ++p) {
        const std::int64_t y = (w / windows * window + p / window + shift) % side,
                           x = (w % windows * window + p % window + shift) % side;
        out.push_back(double((b * side + y) * side + x));
      }
  return out;
}

std::vector<double> swin_restore(std::int64_t batch, std::int64_t side, std::int64_t window, std::int64_t shift) {
  const std::vector<double> forward = swin_partition(batch, side, window, shift);
  std::vector<double> out(forward.size());
  for (std::size_t i = 0; i < forward.size(); ++i) out[static_cast<std::size_t>(forward[i])] = double(i);
  return out;
}

std::vector<double> swin_mask(std::int64_t side, std::int64_t window, std::int64_t shift) {
  std::vector<double> out;
  const std::int64_t windows = side / window;
  const auto label = [&](std::int64_t w, std::int64_t p) {
    const std::int64_t y = w / windows * window + p / window, x = w % windows * window + p % window;
    return 3 * region(y, side, window, shift) + region(x, side, window, shift);
  };
  for (std::int64_t w = 0; w < windows * windows; ++w)
    for (std::int64_t i = 0; i < window * window; ++i)
      for (std::int64_t j = 0; j < window * window; ++j) out.push_back(label(w, i) == label(w, j) ? 0.0 : -100.0);
  return out;
}

std::vector<double> merge_rows(std::int64_t batch, std::int64_t side) {
  std::vector<double> out;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t y = 0; y < side; y += 2)
      for (std::int64_t x = 0; x < side; x += 2)
        for (std::int64_t part = 0; part < 4; ++part)
          out.push_back(double((b * side + y + part % 2) * side + x + part / 2));
  return out;
}

std::vector<double> repeated_range(std::int64_t first, std::int64_t step, std::int64_t count, std::int64_t times) {
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(count * times));
  for (std::int64_t t = 0; t < times; ++t)
    for (std::int64_t i = 0; i < count; ++i) out.push_back(double(first + step * i));
  return out;
}

}  // namespace orrery
