// SPDX-License-Identifier: Apache-2.0
#include "gui/core/colouring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/core/draw.hpp"

namespace orrery::gui {
namespace {

/// Dark blue over green to yellow, evenly brighter: five stops of viridis (van der Walt and Smith 2015).
Color ramp(double share) {
  static constexpr Color kStops[] = {rgb(68, 1, 84), rgb(59, 82, 139), rgb(33, 145, 140), rgb(94, 201, 98),
                                     rgb(253, 231, 37)};
  const double at = std::clamp(share, 0.0, 1.0) * 4;
  const int i = std::min(3, static_cast<int>(at));
  return mix(kStops[i], kStops[i + 1], static_cast<std::uint32_t>((at - i) * 256));
}

constexpr std::uint8_t kNoCategory = 255;  // category of what has no layer, partner …

Colouring by_class(Document& document) {
  Colouring c;
  ClassCounts used{};
  for (const Track& t : document.tracks())
    for (std::size_t i = 0; i < used.size(); ++i) used[i] += t.counts.back()[i];
  for (std::size_t i = 0; i < kNumOpClasses; ++i) {
    c.colors[i] = category_color(i);
    if (used[i] > 0) c.legend.push_back({std::string{orrery::name_of(static_cast<OpClass>(i))}, c.colors[i]});
  }
  document.categorise_by_class();
  return c;
}

/// Numbers in order: few get colours of their own, many a ramp.
template <class Number>
Colouring by_number(Document& document, std::string_view word, const Theme& look, Number number) {
  std::int64_t most = 0;
  for (EventIndex e = 0; e < document.events().size(); ++e) most = std::max<std::int64_t>(most, number(e));
  Colouring c;
  const bool is_ramp = most >= 12;
  const std::int64_t per_category = most / 250 + 1;
  for (std::int64_t i = 0; i <= most / per_category; ++i)
    c.colors[static_cast<std::size_t>(i)] =
        is_ramp ? ramp(double(i * per_category) / double(most)) : category_color(static_cast<std::size_t>(i));
  c.colors[kNoCategory] = look.middle;
  for (int i = 0; i <= (is_ramp ? 5 : most); ++i) {
    const std::int64_t n = is_ramp ? most * i / 5 : i;
    c.legend.push_back({fmt::format("{} {}", word, n), c.colors[static_cast<std::size_t>(n / per_category)]});
  }
  document.categorise([&](EventIndex e) {
    const std::int64_t n = number(e);
    return n < 0 ? kNoCategory : static_cast<std::uint8_t>(n / per_category);
  });
  return c;
}

Colouring by_phase(Document& document) {
  Colouring c;
  const EventSource& events = document.events();
  std::array<bool, kNumPhases> used{};
  for (EventIndex e = 0; e < events.size(); ++e) used[static_cast<std::size_t>(events.facets(e).phase)] = true;
  document.categorise([&](EventIndex e) { return static_cast<std::uint8_t>(events.facets(e).phase); });
  for (std::size_t i = 0; i < kNumPhases; ++i) {
    c.colors[i] = category_color(i);
    if (used[i]) c.legend.push_back({std::string{orrery::name_of(static_cast<Phase>(i))}, c.colors[i]});
  }
  return c;
}

constexpr int kErrorCategories = 15;  // on each side of zero

/// What an error that is drawn as `share` of the scale's kErrorRange means.
std::string error_text(double share, const ShownErrors* errors) {
  if (errors != nullptr && errors->range_ps > 0) return signed_text(share / kErrorRange * errors->range_ps * 1e-12);
  return share == 0 ? "0 %" : fmt::format("{:+.0f} %", share * 100);
}

Colouring by_error(Document& document, const Theme& look, const ShownErrors* errors) {
  Colouring c;
  for (int i = -kErrorCategories; i <= kErrorCategories; ++i)
    c.colors[static_cast<std::size_t>(i + kErrorCategories)] = error_color(look, kErrorRange * i / kErrorCategories);
  c.colors[kNoCategory] = look.grid;
  for (const int percent : {-30, -15, 0, 15, 30})
    c.legend.push_back({error_text(percent / 100.0, errors), error_color(look, percent / 100.0)});
  c.legend.push_back({"unmatched", look.grid});
  document.categorise([&](EventIndex e) {
    if (errors == nullptr || e >= errors->values.size() || std::isnan(errors->values[e])) return kNoCategory;
    const double step = std::clamp(double(errors->values[e]) / kErrorRange, -1.0, 1.0) * kErrorCategories;
    return static_cast<std::uint8_t>(std::lround(step) + kErrorCategories);
  });
  return c;
}

constexpr int kSlackSteps = 64;

Colouring by_slack(Document& document, const Theme& look, const Insight* insight) {
  Colouring c;
  for (int i = 0; i <= kSlackSteps; ++i)
    c.colors[static_cast<std::size_t>(i)] = slack_color(look, double(i) / kSlackSteps);
  c.colors[kNoCategory] = look.grid;
  const double whole = std::max<double>(1, double(document.end() - document.begin()));
  for (const double share : {0.0, 0.01, 0.1, 0.5})
    c.legend.push_back(
        {share == 0 ? "critical" : "slack " + to_text(Seconds{share * whole * 1e-12}), slack_color(look, share)});
  document.categorise([&](EventIndex e) {
    if (insight == nullptr) return kNoCategory;
    const double share = std::clamp(double(insight->slack[e]) / whole, 0.0, 1.0);
    // Rounded up: only what has no slack at all looks critical.
    return static_cast<std::uint8_t>(std::ceil(share * kSlackSteps));
  });
  return c;
}

}  // namespace

Colouring colour(Document& document, const View& view, const Insight* insight, const ShownErrors* errors) {
  const Theme& look = theme(view.theme);
  const EventSource& events = document.events();
  switch (view.colour_by) {
    case ColourBy::Rank:
      return by_number(document, "rank", look, [&](EventIndex e) { return std::int64_t{events.facets(e).rank}; });
    case ColourBy::Layer:
      return by_number(document, "layer", look, [&](EventIndex e) { return std::int64_t{events.facets(e).layer}; });
    case ColourBy::Microbatch:
      return by_number(document, "microbatch", look,
                       [&](EventIndex e) { return std::int64_t{events.facets(e).microbatch}; });
    case ColourBy::Phase:
      return by_phase(document);
    case ColourBy::Error:
      return by_error(document, look, errors);
    case ColourBy::Slack:
      return by_slack(document, look, insight);
    case ColourBy::Class:
      break;
  }
  return by_class(document);
}

}  // namespace orrery::gui
