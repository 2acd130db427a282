// SPDX-License-Identifier: Apache-2.0
// Index maps and masks of Swin and T5, built once at set-up.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/host/vision.hpp"

namespace orrery::kernels {
namespace {

/// Bucket of one relative position; in float as the published models compute it, so that borders fall alike.
std::int64_t t5_bucket(const T5BucketArgs& a, std::int64_t relative) {
  const std::int64_t buckets = a.bidirectional ? a.buckets / 2 : a.buckets, exact = buckets / 2;
  const std::int64_t base = a.bidirectional && relative > 0 ? buckets : 0;
  const std::int64_t distance = a.bidirectional ? std::abs(relative) : std::max<std::int64_t>(-relative, 0);
  if (distance < exact) return base + distance;
  const float octaves = std::log(static_cast<float>(distance) / static_cast<float>(exact));
  const float range = static_cast<float>(std::log(static_cast<double>(a.max_distance) / static_cast<double>(exact)));
  const auto grown = static_cast<std::int64_t>(octaves / range * static_cast<float>(buckets - exact));
  return base + std::min(exact + grown, buckets - 1);
}

/// Which of three bands of a shifted axis a position falls into.
int band(std::int64_t position, std::int64_t size, const SwinDims& d) {
  return position < size - d.window ? 0 : position < size - d.shift ? 1 : 2;
}

}  // namespace

void t5_bucket_index(const T5BucketArgs& a) {
  for (std::int64_t i = 0; i < a.q_len; ++i)
    for (std::int64_t j = 0; j < a.kv_len; ++j)
      a.index[i * a.kv_len + j] = static_cast<std::int32_t>(t5_bucket(a, j - (i + a.offset)));
}

void swin_relative_index(std::int64_t window, std::int32_t* index) {
  const std::int64_t size = window * window;
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j < size; ++j) {
      const std::int64_t dy = i / window - j / window + window - 1, dx = i % window - j % window + window - 1;
      index[i * size + j] = static_cast<std::int32_t>(dy * (2 * window - 1) + dx);
    }
}

void swin_window_index(const SwinDims& d, std::int32_t* index) {
  const std::int64_t w = d.window;
  for (std::int64_t b = 0; b < d.batch; ++b)
    for (std::int64_t wy = 0; wy < d.height; wy += w)
      for (std::int64_t wx = 0; wx < d.width; wx += w)
        for (std::int64_t t = 0; t < w * w; ++t) {
          const std::int64_t y = (wy + t / w + d.shift) % d.height, x = (wx + t % w + d.shift) % d.width;
          *index++ = static_cast<std::int32_t>((b * d.height + y) * d.width + x);
        }
}

template <class T>
void swin_mask(const SwinDims& d, T* mask) {
  const std::int64_t w = d.window, size = w * w;
  const auto region = [&](std::int64_t wy, std::int64_t wx, std::int64_t t) {
    return 3 * band(wy + t / w, d.height, d) + band(wx + t % w, d.width, d);
  };
  for (std::int64_t wy = 0; wy < d.height; wy += w)
    for (std::int64_t wx = 0; wx < d.width; wx += w)
      for (std::int64_t i = 0; i < size; ++i)
        for (std::int64_t j = 0; j < size; ++j)
          *mask++ = d.shift == 0 || region(wy, wx, i) == region(wy, wx, j) ? T(0) : T(-100);
}

void patch_merge_index(const SwinDims& d, std::int32_t* index) {
  for (std::int64_t b = 0; b < d.batch; ++b)
    for (std::int64_t y = 0; y < d.height; y += 2)
      for (std::int64_t x = 0; x < d.width; x += 2)
        for (std::int64_t part = 0; part < 4; ++part)
          *index++ = static_cast<std::int32_t>((b * d.height + y + part % 2) * d.width + x + part / 2);
}

template void swin_mask<float>(const SwinDims&, float*);
template void swin_mask<double>(const SwinDims&, double*);

}  // namespace orrery::kernels
