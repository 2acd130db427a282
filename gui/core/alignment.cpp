// SPDX-License-Identifier: Apache-2.0
#include "gui/core/alignment.hpp"

#include <algorithm>
#include <cmath>

#include "sim/timeline/span_graph.hpp"

namespace orrery::gui {
namespace {

constexpr EnumName<Alignment> kAlignments[] = {
    {Alignment::Step, "step"}, {Alignment::Op, "op"}, {Alignment::Clock, "clock"}, {Alignment::Manual, "manual"}};

/// Starts of the steps that both have, in order.
std::vector<Warp::Knot> step_knots(const Document& main, const Document& other, const Matching& matching) {
  std::vector<Warp::Knot> knots;
  if (main.trace() != nullptr && other.trace() != nullptr) {
    const std::size_t both = std::min(main.markers().size(), other.markers().size());
    for (std::size_t i = 0; i < both; ++i) knots.push_back({other.markers()[i].start, main.markers()[i].start});
    return knots;
  }
  // Where one does not say when its steps began: the first pair of each step that the other one knows.
  std::map<std::uint32_t, Warp::Knot> firsts;
  for (EventIndex e = 0; e < matching.partner_of_main.size(); ++e) {
    const EventIndex p = matching.partner_of_main[e];
    if (p == kNoEvent) continue;
    const std::uint32_t step =
        main.trace() != nullptr ? main.events().facets(e).instance : other.events().facets(p).instance;
    const Warp::Knot knot{other.events().start(p), main.start(e)};
    const auto [first, is_new] = firsts.try_emplace(step, knot);
    if (!is_new && knot.from < first->second.from) first->second = knot;
  }
  for (const auto& [step, knot] : firsts) knots.push_back(knot);
  return knots;
}

/// Within a step time passes as fast as it did: a piece from each start to just before the next one.
Warp step_warp(const std::vector<Warp::Knot>& starts) {
  std::vector<Warp::Knot> knots;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    knots.push_back(starts[i]);
    if (i + 1 == starts.size()) break;
    const std::int64_t length = std::min(starts[i + 1].from - starts[i].from, starts[i + 1].to - starts[i].to);
    if (length > 1) knots.push_back({starts[i].from + length - 1, starts[i].to + length - 1});
  }
  return Warp{std::move(knots)};
}

std::map<std::uint32_t, Warp> op_warps(const Document& main, const Document& other, const Matching& matching) {
  std::map<std::uint32_t, std::vector<Warp::Knot>> knots;
  for (EventIndex e = 0; e < matching.partner_of_main.size(); ++e) {
    const EventIndex p = matching.partner_of_main[e];
    if (p == kNoEvent) continue;
    const std::uint32_t owner = other.owners()[other.tracks()[other.place(p).track].owner].id;
    knots[owner].push_back({other.events().start(p), main.start(e)});
  }
  std::map<std::uint32_t, Warp> out;
  for (auto& [owner, k] : knots) {
    std::sort(k.begin(), k.end(), [](auto& a, auto& b) { return std::pair{a.from, a.to} < std::pair{b.from, b.to}; });
    out[owner] = Warp{std::move(k)};
  }
  return out;
}

double residual(const Document& main, const Document& other, const Matching& matching,
                const std::map<std::uint32_t, Warp>& warps) {
  double sum = 0;
  std::uint64_t count = 0;
  for (EventIndex e = 0; e < matching.partner_of_main.size(); ++e) {
    const EventIndex p = matching.partner_of_main[e];
    if (p == kNoEvent) continue;
    const auto warp = warps.find(other.owners()[other.tracks()[other.place(p).track].owner].id);
    const std::int64_t at = other.events().start(p);
    const double off = double((warp != warps.end() ? warp->second(at) : at) - main.start(e)) * 1e-3;
    sum += off * off;
    ++count;
  }
  return count > 0 ? std::sqrt(sum / double(count)) : 0;
}

}  // namespace

std::span<const EnumName<Alignment>> enum_names(Alignment) { return kAlignments; }

Warp::Warp(std::vector<Knot> knots) {
  for (const Knot& k : knots)
    if (knots_.empty() || (k.from > knots_.back().from && k.to > knots_.back().to)) knots_.push_back(k);
}

std::int64_t Warp::operator()(std::int64_t at) const {
  if (knots_.empty()) return at;
  const auto next =
      std::upper_bound(knots_.begin(), knots_.end(), at, [](std::int64_t t, const Knot& k) { return t < k.from; });
  if (next == knots_.begin()) return next->to + (at - next->from);
  const Knot& before = *(next - 1);
  if (next == knots_.end()) return before.to + (at - before.from);
  const double share = double(at - before.from) / double(next->from - before.from);
  return before.to + static_cast<std::int64_t>(std::llround(share * double(next->to - before.to)));
}

std::map<std::uint32_t, ClockFit> fit_clocks(const Document& document) {
  std::map<std::uint32_t, ClockFit> out;
  if (document.trace() == nullptr) return out;
  const Timeline& t = document.trace()->timeline;
  const SpanGraph graph{t, document.trace()->plans};
  struct Sums {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    std::vector<std::pair<double, double>> points;             // ends
    std::vector<std::pair<SpanIndex, SpanIndex>> collectives;  // on the rank and on the first one
  };
  std::map<std::uint32_t, Sums> sums;
  for (SpanIndex s = 0; s < t.spans.size(); ++s) {
    const std::span<const SpanIndex> meeting = graph.meeting(s);
    if (meeting.empty() || t.spans[s].part != 0) continue;
    const SpanIndex first = *std::min_element(
        meeting.begin(), meeting.end(), [&](SpanIndex a, SpanIndex b) { return t.spans[a].rank < t.spans[b].rank; });
    if (first == s) continue;
    Sums& m = sums[t.spans[s].rank.value];
    const double x = double(t.spans[s].end_ps), y = double(t.spans[first].end_ps);
    m.points.emplace_back(x, y);
    m.collectives.emplace_back(s, first);
  }
  for (auto& [rank, m] : sums) {
    for (const auto& [x, y] : m.points) {
      m.n += 1;
      m.x += x;
      m.y += y - x;
    }
    const double mean_x = m.x / m.n, mean_d = m.y / m.n;
    for (const auto& [x, y] : m.points) {
      m.xx += (x - mean_x) * (x - mean_x);
      m.xy += (x - mean_x) * (y - x - mean_d);
    }
    ClockFit fit;
    fit.collectives = m.points.size();
    fit.skew = m.xx > 0 && m.n > 2 ? m.xy / m.xx : 0;
    fit.offset_ps = mean_d - fit.skew * mean_x;
    double least = -INFINITY, most = INFINITY;
    for (const auto& [own, first] : m.collectives) {
      const Span &a = t.spans[own], &b = t.spans[first];
      least = std::max(least, double(b.start_ps) - (1 + fit.skew) * double(a.end_ps));
      most = std::min(most, double(b.end_ps) - (1 + fit.skew) * double(a.start_ps));
    }
    fit.offset_ps = least <= most ? std::clamp(fit.offset_ps, least, most) : (least + most) / 2;
    double sum = 0;
    for (const auto& [x, y] : m.points) {
      const double off = (1 + fit.skew) * x + fit.offset_ps - y;
      sum += off * off;
    }
    fit.residual_ns = std::sqrt(sum / m.n) * 1e-3;
    out[rank] = fit;
  }
  return out;
}

Aligned align(const Document& main, const Document& other, const Matching& matching, Alignment mode,
              std::int64_t manual_ps) {
  Aligned out;
  const std::vector<Warp::Knot> starts = step_knots(main, other, matching);
  if (mode == Alignment::Op) out.warps = op_warps(main, other, matching);
  if (mode == Alignment::Clock) out.clocks = fit_clocks(other);
  const std::int64_t shift = starts.empty() ? 0 : starts.front().to - starts.front().from;
  for (const Owner& o : other.owners()) {
    if (mode == Alignment::Step) out.warps[o.id] = step_warp(starts);
    if (mode == Alignment::Manual) out.warps[o.id] = Warp{{{0, manual_ps}}};
    if (mode != Alignment::Clock) continue;
    const auto fit = out.clocks.find(o.id);
    const ClockFit clock = fit != out.clocks.end() ? fit->second : ClockFit{};
    const auto moved = [&](std::int64_t at) {
      return static_cast<std::int64_t>((1 + clock.skew) * double(at) + clock.offset_ps) + shift;
    };
    out.warps[o.id] =
        Warp{{{0, moved(0)}, {std::max<std::int64_t>(1, other.end()), moved(std::max<std::int64_t>(1, other.end()))}}};
  }
  out.residual_ns = residual(main, other, matching, out.warps);
  if (mode == Alignment::Clock && !out.clocks.empty()) {
    double sum = 0;
    for (const auto& [rank, c] : out.clocks) sum += c.residual_ns * c.residual_ns;
    out.residual_ns = std::sqrt(sum / double(out.clocks.size()));
  }
  return out;
}

}  // namespace orrery::gui
