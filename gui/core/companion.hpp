// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gui/core/colouring.hpp"
#include "gui/core/document.hpp"
#include "gui/core/matching.hpp"
#include "gui/core/view.hpp"

namespace orrery::gui {

/// Errors of a lane's slices in a bucket of time. A mean of signed errors cancels, so three numbers are kept.
struct ErrorCell {
  float time = 0;               // of matched slices in the bucket, picoseconds
  float sum = 0, absolute = 0;  // Σ time · error, Σ time · |error|
  float worst = 0;              // the error with the largest size
  std::uint32_t worst_slice = UINT32_MAX;
  float unmatched = 0;  // picoseconds

  /// A slice, or the part of it in a bucket.
  static ErrorCell of(std::uint32_t slice, float error, double time);
  ErrorCell& operator+=(const ErrorCell& c);
};
using ErrorBuckets = Buckets<ErrorCell>;
ErrorBuckets error_buckets(const Columns& columns, const EventErrors& errors);

/// A second timeline laid beside the main one: its times are those of the main one's axis.
struct Companion {
  Document document;
  Colouring colouring;
  Matching matching;
  double residual_ns = 0;                            // of the alignment
  EventErrors errors;                                // of durations, per event of the main document
  std::vector<std::vector<std::uint32_t>> lanes_of;  // per track of the main document: those of the other one
  std::vector<ErrorBuckets> strips;                  // per track of the main document: of what is shown
  ErrorChannel channel = ErrorChannel::Duration;     // what is shown, and its errors where they are not `errors`
  EventErrors of_channel;
  double channel_range_ps = 0;

  ShownErrors shown() const { return {channel == ErrorChannel::Duration ? errors : of_channel, channel_range_ps}; }
};

/// What two timelines are called where both are shown: "predicted" and "measured", or "first" and "second" when they
/// are of one kind.
std::string_view side_name(const Document& main, const Document& other, Side side);

}  // namespace orrery::gui
