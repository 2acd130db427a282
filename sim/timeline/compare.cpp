// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/compare.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include "sim/timeline/analysis.hpp"

namespace orrery {
namespace {

/// One of the two timelines, with what both ways of comparing ask of it.
struct Side {
  Side(const Timeline& t, const PlanDigests& p) : timeline{t}, plans{p}, graph{t, p}, analysis{analyse(t, p, graph)} {
    double total = 0;
    for (const RankTime& r : analysis.ranks) total += r.weight;
    for (const RankTime& r : analysis.ranks) shares[r.rank] = r.weight / total;
    for (const SpanTable::Block& b : graph.table().blocks()) {
      const Span& first = t.spans[graph.table().of(b).front()];
      representatives.try_emplace({t.plan_of(b.instance), plan_of(t, p, first).class_of(first.op)}, b.rank);
    }
  }

  double seconds(SpanIndex s) const { return double(timeline.spans[s].end_ps - graph.ready_ps(s)) * 1e-12; }
  const PlanDigest& plan(const Span& span) const { return plan_of(timeline, plans, span); }

  /// The span with this key, or that of the rank which stands for `rank`.
  SpanIndex find(const Span& key, ClassId rank_class) const {
    const SpanIndex own = graph.table().find(key.instance, key.op, key.rank, key.part);
    if (own != kNoSpan || shares.contains(key.rank)) return own;
    const auto it = representatives.find({timeline.plan_of(key.instance), rank_class});
    if (it == representatives.end()) return kNoSpan;
    return graph.table().find(key.instance, key.op, it->second, key.part);
  }

  const Timeline& timeline;
  const PlanDigests& plans;
  SpanGraph graph;
  Analysis analysis;
  std::map<RankId, double> shares;  // of each recorded rank in a mean over all ranks
  std::map<std::pair<std::uint32_t, ClassId>, RankId> representatives;
};

/// Adds spans up under a name.
class ComparedRows {
 public:
  void add_reference(std::string_view name, double seconds) {
    ErrorRow& row = at(name);
    ++row.count;
    row.reference += seconds;
  }
  void add_candidate(std::string_view name, double seconds) { at(name).candidate += seconds; }
  void add_absolute(std::string_view name, double seconds) { at(name).absolute += seconds; }

  std::vector<ErrorRow> sorted(bool joined) const {
    std::vector<ErrorRow> out;
    for (const auto& [name, row] : rows_) out.push_back(row);
    for (ErrorRow& row : out)
      if (!joined) row.absolute = std::abs(row.difference());
    std::stable_sort(out.begin(), out.end(), [](const ErrorRow& a, const ErrorRow& b) {
      return std::abs(a.difference()) > std::abs(b.difference());
    });
    return out;
  }

 private:
  ErrorRow& at(std::string_view name) {
    const auto it = rows_.find(name);
    if (it != rows_.end()) return it->second;
    ErrorRow& row = rows_[std::string{name}];
    row.name = name;
    return row;
  }
  std::map<std::string, ErrorRow, std::less<>> rows_;
};

/// The tables of spans: by class, kind, pattern and op.
struct SpanRows {
  ComparedRows by_class, by_kind, by_pattern, by_op;

  template <class Add>
  void add(const PlanDigest& plan, OpId op, Add add_to) {
    const WorkDigest& work = plan.work(op);
    add_to(by_class, orrery::name_of(work.op_class));
    add_to(by_kind, plan.names[work.kind]);
    add_to(by_pattern, name_pattern(plan.name_of(op)));
    add_to(by_op, plan.name_of(op));
  }
};

bool same_runs(const Side& a, const Side& b) {
  const std::size_t instances = std::max(a.timeline.instance_ends_ps.size(), b.timeline.instance_ends_ps.size());
  for (std::uint32_t i = 0; i < std::max<std::size_t>(1, instances); ++i)
    if (a.timeline.plan_of(i) != b.timeline.plan_of(i)) return false;
  if (a.plans.size() != b.plans.size()) return false;
  for (std::size_t p = 0; p < a.plans.size(); ++p)
    if (!same_ops(a.plans[p], b.plans[p])) return false;
  return true;
}

void join(const Side& reference, const Side& candidate, SpanRows& rows, Comparison& out) {
  std::vector<bool> used(candidate.timeline.spans.size(), false);
  for (SpanIndex s = 0; s < reference.timeline.spans.size(); ++s) {
    const Span& span = reference.timeline.spans[s];
    const PlanDigest& plan = reference.plan(span);
    const SpanIndex other = candidate.find(span, plan.class_of(span.op));
    const double share = reference.shares.at(span.rank);
    const double r = share * reference.seconds(s);
    if (other == kNoSpan) {
      ++out.only_reference.spans;
      if (span.part == 0) out.only_reference.seconds += r;
      continue;
    }
    used[other] = true;
    ++out.matched;
    if (span.part != 0) continue;
    const double c = share * candidate.seconds(other);
    rows.add(plan, span.op, [&](ComparedRows& table, std::string_view name) {
      table.add_reference(name, r);
      table.add_candidate(name, c);
      table.add_absolute(name, std::abs(c - r));
    });
  }
  for (SpanIndex s = 0; s < used.size(); ++s) {
    const Span& span = candidate.timeline.spans[s];
    if (used[s]) continue;
    // A folded reference stands for this rank too: a partner of the same class is a match.
    if (!reference.shares.contains(span.rank) &&
        reference.find(span, candidate.plan(span).class_of(span.op)) != kNoSpan)
      continue;
    ++out.only_candidate.spans;
    if (span.part == 0) out.only_candidate.seconds += candidate.shares.at(span.rank) * candidate.seconds(s);
  }
}

void add_up(const Side& reference, const Side& candidate, SpanRows& rows) {
  for (SpanIndex s = 0; s < reference.timeline.spans.size(); ++s) {
    const Span& span = reference.timeline.spans[s];
    const double seconds = reference.shares.at(span.rank) * reference.seconds(s);
    if (span.part != 0) continue;
    rows.add(reference.plan(span), span.op,
             [&](ComparedRows& t, std::string_view name) { t.add_reference(name, seconds); });
  }
  for (SpanIndex s = 0; s < candidate.timeline.spans.size(); ++s) {
    const Span& span = candidate.timeline.spans[s];
    const double seconds = candidate.shares.at(span.rank) * candidate.seconds(s);
    if (span.part != 0) continue;
    rows.add(candidate.plan(span), span.op,
             [&](ComparedRows& t, std::string_view name) { t.add_candidate(name, seconds); });
  }
}

std::vector<ErrorRow> exposed_rows(const Analysis& reference, const Analysis& candidate) {
  ComparedRows rows;
  for (int c = 0; c < kNumOpClasses; ++c) {
    const auto i = static_cast<std::size_t>(c);
    if (reference.by_class[i] <= 0 && candidate.by_class[i] <= 0) continue;
    rows.add_reference(name_of(static_cast<OpClass>(c)), reference.by_class[i]);
    rows.add_candidate(name_of(static_cast<OpClass>(c)), candidate.by_class[i]);
  }
  rows.add_reference("waiting", reference.waiting.base());
  rows.add_candidate("waiting", candidate.waiting.base());
  rows.add_reference("idle", reference.idle.base());
  rows.add_candidate("idle", candidate.idle.base());
  return rows.sorted(false);
}

std::vector<ErrorRow> instance_rows(const Timeline& reference, const Timeline& candidate) {
  const std::size_t both = std::min(reference.instance_ends_ps.size(), candidate.instance_ends_ps.size());
  const auto duration = [](const Timeline& t, std::size_t i) {
    return double(t.instance_ends_ps[i] - (i == 0 ? 0 : t.instance_ends_ps[i - 1])) * 1e-12;
  };
  std::vector<ErrorRow> rows;
  for (std::size_t i = 0; i < both; ++i) {
    ErrorRow row{std::to_string(i), 1, duration(reference, i), duration(candidate, i), 0};
    row.absolute = std::abs(row.difference());
    rows.push_back(std::move(row));
  }
  return rows;
}

/// None where one of the two says nothing of memory, as Chrome's format does.
std::vector<PeakDifference> peak_rows(const Timeline& reference, const Timeline& candidate) {
  if (reference.peaks.empty() || candidate.peaks.empty()) return {};
  std::map<std::pair<RankId, Tier>, PeakDifference> rows;
  const auto row = [&](const Peak& p) -> PeakDifference& {
    PeakDifference& d = rows[{p.rank, p.tier}];
    d.rank = p.rank;
    d.tier = p.tier;
    return d;
  };
  for (const Peak& p : reference.peaks) row(p).reference = p.bytes;
  for (const Peak& p : candidate.peaks) row(p).candidate = p.bytes;
  std::vector<PeakDifference> out;
  for (const auto& [key, difference] : rows) out.push_back(difference);
  std::stable_sort(out.begin(), out.end(), [](const PeakDifference& a, const PeakDifference& b) {
    return std::abs(a.candidate - a.reference) > std::abs(b.candidate - b.reference);
  });
  return out;
}

std::string title(const Timeline& t) { return t.machine.empty() ? t.plan_name : t.plan_name + " on " + t.machine; }

}  // namespace

std::string name_pattern(std::string_view name) {
  std::string out;
  for (std::size_t i = 0; i < name.size();) {
    std::size_t end = std::min(name.find('.', i), name.size());
    const std::string_view part = name.substr(i, end - i);
    const bool is_number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    out += is_number ? std::string_view{"*"} : part;
    if (end < name.size()) out += name[end++];
    i = end;
  }
  return out;
}

Comparison compare(const Timeline& reference, const PlanDigests& reference_plans, const Timeline& candidate,
                   const PlanDigests& candidate_plans) {
  const Side a{reference, reference_plans}, b{candidate, candidate_plans};
  Comparison out;
  out.reference_name = title(reference);
  out.candidate_name = title(candidate);
  out.reference_source = reference.source;
  out.candidate_source = candidate.source;
  out.reference_seconds = reference.makespan().base();
  out.candidate_seconds = candidate.makespan().base();
  if (out.reference_seconds > 0) out.error = out.candidate_seconds / out.reference_seconds - 1;
  out.joined = same_runs(a, b);
  SpanRows rows;
  if (out.joined)
    join(a, b, rows, out);
  else
    add_up(a, b, rows);
  out.by_class = rows.by_class.sorted(out.joined);
  out.by_kind = rows.by_kind.sorted(out.joined);
  out.by_pattern = rows.by_pattern.sorted(out.joined);
  out.by_op = rows.by_op.sorted(out.joined);
  out.exposed = exposed_rows(a.analysis, b.analysis);
  out.instances = instance_rows(reference, candidate);
  out.peaks = peak_rows(reference, candidate);
  return out;
}

Comparison compare(const Trace& reference, const Trace& candidate) {
  return compare(reference.timeline, reference.plans, candidate.timeline, candidate.plans);
}

}  // namespace orrery
