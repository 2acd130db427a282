// SPDX-License-Identifier: Apache-2.0
#include "gui/core/retime.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace orrery::gui {
namespace {

std::int64_t latest_end(const Timeline& timeline, const SpanGraph& graph, SpanIndex s) {
  std::int64_t end = 0;
  for (const SpanIndex b : graph.before(s)) end = std::max(end, timeline.spans[b].end_ps);
  return end;
}

}  // namespace

Retimer::Retimer(const Timeline& timeline, const SpanGraph& graph) : timeline_{timeline}, graph_{graph} {
  const std::size_t n = timeline.spans.size();
  durations.resize(n);
  gaps.resize(n);
  first_after_.assign(n + 1, 0);
  for (SpanIndex s = 0; s < n; ++s) {
    durations[s] = timeline.spans[s].end_ps - graph.ready_ps(s);
    gaps[s] = timeline.spans[s].start_ps - latest_end(timeline, graph, s);
    for (const SpanIndex b : graph.before(s)) ++first_after_[b + 1];
  }
  for (std::size_t i = 0; i < n; ++i) first_after_[i + 1] += first_after_[i];
  after_.resize(first_after_[n]);
  std::vector<std::uint32_t> next{first_after_.begin(), first_after_.end() - 1};
  for (SpanIndex s = 0; s < n; ++s)
    for (const SpanIndex b : graph.before(s)) after_[next[b]++] = s;
}

std::int64_t Retimer::makespan() const {
  const std::size_t n = timeline_.spans.size();
  std::vector<std::int64_t> start(n, 0), latest(n, 0);
  std::vector<std::uint32_t> waits(n);
  std::vector<bool> has_begun(n, false);
  std::vector<SpanIndex> ready;
  for (SpanIndex s = 0; s < n; ++s) {
    waits[s] = static_cast<std::uint32_t>(graph_.before(s).size());
    if (waits[s] == 0 && timeline_.spans[s].part == 0) ready.push_back(s);
  }
  std::int64_t end_of_all = 0;
  const auto finish = [&](SpanIndex s, std::int64_t end) {
    end_of_all = std::max(end_of_all, end);
    for (std::uint32_t i = first_after_[s]; i < first_after_[s + 1]; ++i) {
      latest[after_[i]] = std::max(latest[after_[i]], end);
      if (--waits[after_[i]] == 0) ready.push_back(after_[i]);
    }
  };
  while (!ready.empty()) {
    const SpanIndex s = ready.back();
    ready.pop_back();
    start[s] = latest[s] + gaps[s];
    has_begun[s] = true;
    const std::span<const SpanIndex> meeting = graph_.meeting(s);
    if (meeting.empty()) {
      finish(s, start[s] + durations[s]);
      continue;
    }
    if (!std::all_of(meeting.begin(), meeting.end(), [&](SpanIndex p) { return has_begun[p]; })) continue;
    std::int64_t begun = start[s];
    for (const SpanIndex p : meeting) begun = std::max(begun, start[p]);
    for (const SpanIndex p : meeting) finish(p, begun + durations[p]);
  }
  return end_of_all;
}

namespace {

/// Classes of durations: those of ops, and collectives between nodes.
constexpr std::size_t kBetweenNodes = kNumOpClasses, kNumClasses = kNumOpClasses + 1;
constexpr std::size_t kGaps = kNumClasses;

/// Which collectives have partners on several nodes.
class NodeBorders {
 public:
  explicit NodeBorders(const Document& document) : trace_{*document.trace()}, per_node_{document.devices_per_node()} {}

  bool are_crossed(const Span& span) {
    if (per_node_ == Document::kNoNodes) return false;
    const PlanDigest& plan = plan_of(trace_.timeline, trace_.plans, span);
    const GroupId group = plan.work(span.op).group;
    if (group.is_none()) return false;
    const auto key = std::tuple{trace_.timeline.plan_of(span.instance), group.value, span.rank.value};
    const auto [it, is_new] = known_.try_emplace(key, false);
    if (!is_new) return it->second;
    const std::vector<RankId> all = members(plan.mesh, plan.groups[group.index()], span.rank);
    return it->second = std::any_of(all.begin(), all.end(), [&](RankId r) {
             return std::int64_t{r.value} / per_node_ != std::int64_t{span.rank.value} / per_node_;
           });
  }

 private:
  const Trace& trace_;
  std::int64_t per_node_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, bool> known_;  // plan, group, rank
};

std::string name_of_class(std::size_t c, bool has_nodes) {
  if (c == kGaps) return "launch gaps";
  if (c == kBetweenNodes) return "collective between nodes";
  const auto op_class = static_cast<OpClass>(c);
  return std::string{orrery::name_of(op_class)} + (has_nodes && op_class == OpClass::Collective ? " in a node" : "");
}

/// The numbers of both runs for the spans that have a partner.
struct Substitution {
  Retimer main;
  std::vector<std::int64_t> durations, gaps;  // of the partners; of the span itself without one
  std::vector<std::size_t> class_of;
  std::array<double, kNumClasses> sum_main{}, sum_other{};
  std::array<std::uint64_t, kNumClasses> pairs{};

  Substitution(const Document& m, const Insight& mi, const Document& o, const Insight& oi,
               const std::vector<EventIndex>& partner)
      : main{m.trace()->timeline, mi.graph}, durations{main.durations}, gaps{main.gaps}, class_of(durations.size()) {
    const Retimer other{o.trace()->timeline, oi.graph};
    NodeBorders borders{m};
    for (EventIndex e = 0; e < durations.size(); ++e) {
      class_of[e] = static_cast<std::size_t>(m.events().facets(e).op_class);
      if (class_of[e] == static_cast<std::size_t>(OpClass::Collective) &&
          borders.are_crossed(m.trace()->timeline.spans[e]))
        class_of[e] = kBetweenNodes;
      if (partner[e] == kNoEvent) continue;
      durations[e] = other.durations[partner[e]];
      gaps[e] = other.gaps[partner[e]];
      sum_main[class_of[e]] += double(main.durations[e]);
      sum_other[class_of[e]] += double(durations[e]);
      ++pairs[class_of[e]];
    }
  }

  /// Seconds that each class adds when put in after those before it.
  std::vector<double> run(bool is_reverse) const {
    Retimer now = main;
    std::vector<double> out(kNumClasses + 1);
    std::int64_t last = now.makespan();
    for (std::size_t k = 0; k <= kNumClasses; ++k) {
      const std::size_t c = is_reverse ? kNumClasses - k : k;
      for (EventIndex e = 0; e < durations.size(); ++e) {
        if (c == kGaps) now.gaps[e] = gaps[e];
        if (class_of[e] == c) now.durations[e] = durations[e];
      }
      const std::int64_t next = c == kGaps || pairs[c] > 0 ? now.makespan() : last;
      out[c] = double(next - last) * 1e-12;
      last = next;
    }
    return out;
  }
};

}  // namespace

Explanation explain(const Document& main, const Insight& main_insight, const Document& other,
                    const Insight& other_insight, const std::vector<EventIndex>& partner_of_main) {
  const Substitution s{main, main_insight, other, other_insight, partner_of_main};
  const std::vector<double> forward = s.run(false), reverse = s.run(true);
  Explanation out;
  out.main = double(main.trace()->timeline.makespan_ps) * 1e-12;
  out.other = double(other.trace()->timeline.makespan_ps) * 1e-12;
  const bool has_nodes = main.devices_per_node() != Document::kNoNodes;
  Share structure{.name = "structure", .forward = out.other - out.main, .reverse = out.other - out.main};
  for (std::size_t c = 0; c <= kNumClasses; ++c) {
    structure.forward -= forward[c];
    structure.reverse -= reverse[c];
    if (c != kGaps && s.pairs[c] == 0) continue;
    Share share{.name = name_of_class(c, has_nodes), .forward = forward[c], .reverse = reverse[c]};
    if (c != kGaps) {
      share.pairs = s.pairs[c];
      share.bias = s.sum_main[c] > 0 ? s.sum_other[c] / s.sum_main[c] - 1 : 0;
    }
    out.shares.push_back(std::move(share));
  }
  out.shares.push_back(std::move(structure));
  return out;
}

std::vector<EventIndex> worst_events(const Document& main, const Insight& insight, const Companion& other) {
  std::vector<std::pair<std::int64_t, EventIndex>> all;
  for (EventIndex e = 0; e < other.matching.partner_of_main.size(); ++e) {
    if (other.matching.partner_of_main[e] == kNoEvent || e >= other.errors.size() || std::isnan(other.errors[e]))
      continue;
    const double duration = double(main.end(e) - main.start(e));
    const auto difference = static_cast<std::int64_t>(duration * std::expm1(double(other.errors[e])));
    std::int64_t effect = 0;  // on the end of the run
    if (insight.is_critical[e])
      effect = std::abs(difference);
    else if (difference > insight.slack[e])
      effect = difference - insight.slack[e];
    if (effect > 0) all.emplace_back(-effect, e);
  }
  std::sort(all.begin(), all.end());
  std::vector<EventIndex> out;
  for (const auto& [effect, e] : all) out.push_back(e);
  return out;
}

}  // namespace orrery::gui
