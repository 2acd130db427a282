// SPDX-License-Identifier: Apache-2.0
#include "gui/core/view.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::gui {
namespace {

constexpr std::int64_t kShortest = 1000;  // a nanosecond

constexpr EnumName<ColourBy> kColourBy[] = {{ColourBy::Class, "class"}, {ColourBy::Rank, "rank"},
                                            {ColourBy::Layer, "layer"}, {ColourBy::Microbatch, "microbatch"},
                                            {ColourBy::Phase, "phase"}, {ColourBy::Error, "error"},
                                            {ColourBy::Slack, "slack"}};
constexpr EnumName<CompareMode> kCompareModes[] = {{CompareMode::Lanes, "lanes"},
                                                   {CompareMode::Overlay, "overlay"},
                                                   {CompareMode::Blink, "blink"},
                                                   {CompareMode::Difference, "difference"}};

constexpr EnumName<ErrorChannel> kErrorChannels[] = {{ErrorChannel::Duration, "duration"},
                                                     {ErrorChannel::Time, "time"},
                                                     {ErrorChannel::Start, "start"},
                                                     {ErrorChannel::Gap, "gap"},
                                                     {ErrorChannel::Overlap, "overlap"}};

}  // namespace

std::span<const EnumName<ColourBy>> enum_names(ColourBy) { return kColourBy; }
std::span<const EnumName<CompareMode>> enum_names(CompareMode) { return kCompareModes; }
std::span<const EnumName<ErrorChannel>> enum_names(ErrorChannel) { return kErrorChannels; }

TimeRange zoomed(TimeRange time, std::int64_t around, double factor, TimeRange whole) {
  const double longest = std::max<double>(kShortest, 1.2 * double(whole.length()));
  const double length = std::clamp(double(time.length()) * factor, double(kShortest), longest);
  const double share = time.length() > 0 ? double(around - time.begin) / double(time.length()) : 0.5;
  const auto begin = around - static_cast<std::int64_t>(std::llround(share * length));
  return panned({begin, begin + static_cast<std::int64_t>(std::llround(length))}, 0, whole);
}

TimeRange panned(TimeRange time, double share, TimeRange whole) {
  const std::int64_t length = time.length();
  std::int64_t begin = time.begin + static_cast<std::int64_t>(std::llround(share * double(length)));
  // At least half of what is seen holds something.
  const std::int64_t least = whole.begin - length / 2, most = std::max(least, whole.end - length / 2);
  begin = std::clamp(begin, least, most);
  return {begin, begin + length};
}

}  // namespace orrery::gui
