// SPDX-License-Identifier: Apache-2.0
#include "gui/core/companion.hpp"

#include <cmath>

namespace orrery::gui {
namespace {

/// So many slices share one of the finest buckets, at most about twice as many. Where a pixel is narrower the slices
/// themselves are drawn.
constexpr std::size_t kSlicesPerBucket = 4;

}  // namespace

ErrorCell ErrorCell::of(std::uint32_t slice, float error, double time) {
  const auto t = static_cast<float>(time);
  if (std::isnan(error)) return {.unmatched = t};
  return {t, t * error, t * std::abs(error), error, slice, 0};
}

ErrorCell& ErrorCell::operator+=(const ErrorCell& c) {
  time += c.time;
  sum += c.sum;
  absolute += c.absolute;
  unmatched += c.unmatched;
  if (c.worst_slice != UINT32_MAX && (worst_slice == UINT32_MAX || std::abs(c.worst) > std::abs(worst))) {
    worst = c.worst;
    worst_slice = c.worst_slice;
  }
  return *this;
}

ErrorBuckets error_buckets(const Columns& columns, const EventErrors& errors) {
  if (columns.size() == 0) return {};
  ErrorBuckets out{{columns.start.front(), columns.end.back()}, columns.size() / kSlicesPerBucket};
  const std::span<ErrorCell> finest = out.finest();
  for (std::size_t i = 0; i < columns.size(); ++i)
    out.each_bucket({columns.start[i], columns.end[i]}, [&](std::size_t b, std::int64_t time) {
      finest[b] += ErrorCell::of(static_cast<std::uint32_t>(i), errors[columns.event[i]], double(time));
    });
  out.sum_up([](ErrorCell a, const ErrorCell& b) { return a += b; });
  return out;
}

std::string_view side_name(const Document& main, const Document& other, Side side) {
  if (main.source() == other.source()) return side == Side::Main ? "first" : "second";
  return side == Side::Main ? main.source() : other.source();
}

}  // namespace orrery::gui
