// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/attribution.hpp"

#include <algorithm>
#include <deque>
#include <map>

#include "sim/timeline/stream_line.hpp"

namespace orrery {
namespace {

/// Length of the union of intervals that come in order of their start, from `until` on; moves `until`.
std::int64_t covered(std::int64_t start, std::int64_t end, std::int64_t& until) {
  const std::int64_t from = std::max(start, until);
  until = std::max(until, end);
  return std::max<std::int64_t>(0, end - from);
}

/// Attributes the time of one rank after another. As a rule the compute stream alone does what comes first in line, one
/// op after another: then it leads, none of its ops need be compared with anything, and only what lies between them is
/// looked into.
class Attribution {
 public:
  Attribution(const Timeline& timeline, const PlanDigests& plans, const SpanGraph& graph)
      : timeline_{timeline}, plans_{plans}, graph_{graph}, line_{activities_in_line()} {
    for (std::size_t place = 0; place < line_.size(); ++place) places_[line_[place]] = static_cast<std::uint8_t>(place);
    for (const PlanDigest& plan : plans) {
      std::vector<WorkRow>& rows = works_.emplace_back();
      for (const WorkDigest& w : plan.works) {
        const auto c = static_cast<std::uint8_t>(w.op_class);
        const bool meets = w.meeting != MeetingKind::None;
        rows.push_back({c, places_[c], meets, !meets && places_[c] < first_other_place()});
      }
      blocks_.emplace_back(graph.patterns(static_cast<std::uint32_t>(blocks_.size())).size());
    }
  }

  RankTime of(RankId rank, std::span<const SpanTable::Block* const> blocks) {
    RankTime out;
    const auto gather = [&](bool compute_leads) {
      start(out, rank);
      return std::all_of(blocks.begin(), blocks.end(),
                         [&](const SpanTable::Block* b) { return add(*b, compute_leads, out); });
    };
    if (!gather(true)) gather(false);
    used_.clear();
    for (StreamLine& line : lines_) {
      line.straighten();
      if (!line.is_empty() && &line != &lines_[kCompute]) used_.push_back(&line);
    }
    std::int64_t now = 0;
    for (const Lead& lead : leading_) {
      fill(now, lead.from_ps, out);
      if (lead.copy != nullptr) fill_copy(lead, out);
      now = lead.to_ps;
    }
    fill(now, timeline_.makespan_ps, out);
    add_led(out);
    return out;
  }

 private:
  static constexpr std::size_t kCompute = static_cast<std::size_t>(Stream::Compute);
  struct WorkRow {
    std::uint8_t op_class = 0, place = 0;
    bool meets = false;
    bool leads = false;  // on the compute stream
  };
  /// A block that is repeated: which of its ops run where, and how the last copy did.
  struct Block {
    RankId rank;  // of whom that is told; none: of nobody
    bool may_repeat = false;
    struct Part {
      std::uint32_t first = 0, num_ops = 0;
    };
    struct Beside {
      std::uint32_t op = 0;
      WorkRow work;
      std::uint8_t stream = 0;
    };
    std::vector<Part> parts;     // ops of the compute stream that follow upon each other
    std::vector<Beside> beside;  // ops of other streams
    BlockTimes* run = nullptr;   // none: not known yet
  };
  /// When compute leads, or a copy of a block ran.
  struct Lead {
    std::int64_t from_ps = 0, to_ps = 0;
    BlockTimes* copy = nullptr;
  };
  std::uint8_t first_other_place() const { return places_[static_cast<std::size_t>(OpClass::Host)]; }

  void start(RankTime& out, RankId rank) {
    out = {};
    out.rank = rank;
    for (StreamLine& line : lines_) line.clear();
    leading_.clear();
    led_ps_ = {};
    busy_until_ = {};
    beside_until_ps_ = active_until_ps_ = INT64_MIN;
    runs_.clear();
    for (std::vector<Block>& blocks : blocks_)
      for (Block& block : blocks) block.run = nullptr;
  }

  /// False where compute should lead, but does not.
  bool add(const SpanTable::Block& block, bool compute_leads, RankTime& out) {
    const SpanTable& table = graph_.table();
    const std::uint32_t p = timeline_.plan_of(block.instance);
    if (!compute_leads || !block.is_in_line) return add_spans(table.of(block), p, compute_leads, out);
    const std::uint32_t first_op = timeline_.spans[block.first].op.value;
    for (const Patterns::Piece& piece : graph_.patterns(p).pieces(first_op, block.last - block.first)) {
      const SpanIndex first = block.first + (piece.first - first_op);
      if (piece.pattern != Patterns::kNone && add_copy(blocks_[p][piece.pattern], first, piece, p, out)) continue;
      if (!add_spans(table.list(first, first + piece.num_ops), p, true, out)) return false;
    }
    return true;
  }

  bool add_spans(const SpanList& list, std::uint32_t p, bool compute_leads, RankTime& out) {
    const std::span<const Op> ops = plans_[p].ops;
    const std::span<const WorkRow> works = works_[p];
    for (const SpanIndex s : list) {
      const Span& span = timeline_.spans[s];
      if (span.part != 0) continue;
      ++out.ops;
      const Op& op = ops[span.op.index()];
      const WorkRow work = works[op.work.index()];
      if (compute_leads && op.stream == Stream::Compute) {
        std::int64_t& until = busy_until_[kCompute];
        if (span.start_ps < until || span.end_ps > timeline_.makespan_ps) return false;
        if (work.leads) {
          until = span.end_ps;
          led_ps_[work.op_class] += span.end_ps - span.start_ps;
          lead(span.start_ps, span.end_ps);
          continue;
        }
      } else if (compute_leads && work.place < first_other_place()) {
        return false;
      }
      add_beside(s, work, static_cast<std::size_t>(op.stream), out);
    }
    return true;
  }

  /// Adds the spans of a copy of a block, where they need not be looked at one by one.
  bool add_copy(Block& block, SpanIndex first, const Patterns::Piece& piece, std::uint32_t p, RankTime& out) {
    if (block.rank != out.rank) block = look_into(first, piece, p, out.rank);
    if (!block.may_repeat) return false;
    const std::span<const Span> spans = std::span{timeline_.spans}.subspan(first, piece.num_ops);
    const std::int64_t start = spans[block.parts.front().first].start_ps;
    if (start < busy_until_[kCompute]) return false;
    if (!is_as(block, spans, start) && !learn(block, spans, start, p)) return false;
    const std::int64_t end = start + block.run->end_ps();
    if (end > timeline_.makespan_ps) return false;
    ++block.run->copies;
    out.ops += piece.num_ops;
    busy_until_[kCompute] = end;
    leading_.push_back({start, end, block.run});
    for (const Block::Beside& b : block.beside) add_beside(first + b.op, b.work, b.stream, out);
    return true;
  }

  /// Copies are worth a comparison where compute leads and meets nobody who was recorded.
  Block look_into(SpanIndex first, const Patterns::Piece& piece, std::uint32_t p, RankId rank) const {
    Block out{.rank = rank, .may_repeat = true};
    for (std::uint32_t i = 0; i < piece.num_ops; ++i) {
      const Op& op = plans_[p].ops[piece.first + i];
      if (op.stream != Stream::Compute) {
        out.may_repeat = out.may_repeat && works_[p][op.work.index()].place >= first_other_place();
        out.beside.push_back({i, works_[p][op.work.index()], static_cast<std::uint8_t>(op.stream)});
        continue;
      }
      out.may_repeat = out.may_repeat && !graph_.meets(first + i);
      if (out.parts.empty() || out.parts.back().first + out.parts.back().num_ops != i) out.parts.push_back({i, 0});
      ++out.parts.back().num_ops;
    }
    out.may_repeat = out.may_repeat && !out.parts.empty();
    return out;
  }

  bool is_as(const Block& block, std::span<const Span> spans, std::int64_t start) const {
    if (block.run == nullptr) return false;
    std::size_t first = 0;
    for (const Block::Part& part : block.parts) {
      if (!block.run->is_as(spans.subspan(part.first, part.num_ops), first, start)) return false;
      first += part.num_ops;
    }
    return true;
  }

  /// False where spans of the compute stream overlap.
  bool learn(Block& block, std::span<const Span> spans, std::int64_t start, std::uint32_t p) {
    BlockTimes& run = runs_.emplace_back();
    block.run = nullptr;
    for (const Block::Part& part : block.parts)
      for (const Span& span : spans.subspan(part.first, part.num_ops)) {
        const WorkRow work = works_[p][plans_[p][span.op].work.index()];
        const PlacedTime at{span.start_ps - start, span.end_ps - start, work.place};
        if (at.start_ps < run.end_ps()) return false;
        run.add(at, static_cast<OpClass>(work.op_class), work.leads);
      }
    block.run = &run;
    return true;
  }

  /// Adds what led on the compute stream, and all that copies did there.
  void add_led(RankTime& out) {
    for (const BlockTimes& run : runs_)
      for (std::size_t c = 0; c < led_ps_.size(); ++c) {
        led_ps_[c] += run.copies * run.led_ps[c];
        out.exposed_ps[c] += run.quiet_copies * run.other_ps[c];
        out.running_ps[c] += run.copies * run.other_ps[c];
        out.busy_ps[kCompute] += run.copies * run.other_ps[c];
      }
    for (std::size_t c = 0; c < led_ps_.size(); ++c) {
      out.exposed_ps[c] += led_ps_[c];
      out.running_ps[c] += led_ps_[c];
      out.busy_ps[kCompute] += led_ps_[c];
    }
  }

  void add_beside(SpanIndex s, WorkRow work, std::size_t stream, RankTime& out) {
    const Span& span = timeline_.spans[s];
    const std::int64_t ready = work.meets ? graph_.ready_ps(s) : span.start_ps;
    out.running_ps[work.op_class] += span.end_ps - ready;
    out.busy_ps[stream] += covered(span.start_ps, span.end_ps, busy_until_[stream]);
    lines_[stream].add(span.start_ps, ready, places_[kWaiting]);
    lines_[stream].add(ready, span.end_ps, work.place);
  }

  void lead(std::int64_t from, std::int64_t to) {
    if (!leading_.empty() && leading_.back().to_ps == from && leading_.back().copy == nullptr)
      leading_.back().to_ps = to;
    else if (from < to)
      leading_.push_back({from, to});
  }

  /// Attributes the times of a copy in which compute does not lead.
  void fill_copy(const Lead& lead, RankTime& out) {
    if (lead.from_ps >= active_until_ps_) look_for_activity(lead.from_ps);
    if (lead.to_ps <= active_until_ps_ && active_ == kNumActivities && !lead.copy->is_idle()) {
      ++lead.copy->quiet_copies;
      return;
    }
    for (const PlacedTime& i : lead.copy->others()) {
      const std::int64_t from = lead.from_ps + i.start_ps, to = lead.from_ps + i.end_ps;
      if (i.place == kNumActivities)
        fill(from, to, out);
      else
        fill_around(from, to, i.place, out);
    }
  }

  /// Attributes a time in which the compute stream does what is not first in line, but earlier than waiting.
  void fill_around(std::int64_t from, std::int64_t to, std::size_t place, RankTime& out) {
    while (from < to) {
      if (from >= active_until_ps_) look_for_activity(from);
      const std::int64_t until = std::min(to, active_until_ps_);
      out.exposed_ps[line_[std::min(place, active_)]] += until - from;
      from = until;
    }
  }

  /// Attributes a time in which compute does not lead.
  void fill(std::int64_t from, std::int64_t to, RankTime& out) {
    while (from < to) {
      if (from >= beside_until_ps_) look_beside(from);
      std::int64_t until = std::min(to, beside_until_ps_);
      const std::size_t place = std::min(beside_, lines_[kCompute].place_at(from, until));
      if (place == kNumActivities)
        add_idle(from, until, out);
      else
        (line_[place] == kWaiting ? out.waiting_ps : out.exposed_ps[line_[place]]) += until - from;
      from = until;
    }
  }

  /// Finds what runs beside the compute stream at an instant, and until when that stays so.
  void look_beside(std::int64_t at_ps) {
    beside_ = kNumActivities;
    beside_until_ps_ = INT64_MAX;
    for (StreamLine* line : used_) beside_ = std::min(beside_, line->place_at(at_ps, beside_until_ps_));
  }
  /// The same where waiting counts as nothing.
  void look_for_activity(std::int64_t at_ps) {
    active_ = kNumActivities;
    active_until_ps_ = INT64_MAX;
    for (StreamLine* line : used_) active_ = std::min(active_, line->active_place_at(at_ps, active_until_ps_));
  }

  static void add_idle(std::int64_t from, std::int64_t to, RankTime& out) {
    out.idle_ps += to - from;
    if (to - from <= out.longest_idle_end_ps - out.longest_idle_start_ps) return;
    out.longest_idle_start_ps = from;
    out.longest_idle_end_ps = to;
  }

  const Timeline& timeline_;
  const PlanDigests& plans_;
  const SpanGraph& graph_;
  std::array<Activity, kNumActivities> line_;
  std::array<std::uint8_t, kNumActivities> places_{};  // in line, per activity
  std::vector<std::vector<WorkRow>> works_;            // per plan
  std::vector<std::vector<Block>> blocks_;             // per plan and pattern
  // Of the rank at hand.
  std::array<StreamLine, kNumStreams> lines_;
  std::vector<StreamLine*> used_;                                  // but that of compute
  std::size_t beside_ = kNumActivities, active_ = kNumActivities;  // the same, but waiting
  std::int64_t beside_until_ps_ = INT64_MIN, active_until_ps_ = INT64_MIN;
  std::deque<BlockTimes> runs_;
  std::vector<Lead> leading_;
  std::array<std::int64_t, kNumOpClasses> led_ps_{};
  std::array<std::int64_t, kNumStreams> busy_until_{};
};

}  // namespace

std::vector<RankTime> attribute_time(const Timeline& timeline, const PlanDigests& plans, const SpanGraph& graph) {
  std::map<RankId, std::vector<const SpanTable::Block*>> blocks;
  for (const SpanTable::Block& block : graph.table().blocks()) blocks[block.rank].push_back(&block);
  std::vector<RankTime> out;
  Attribution attribution{timeline, plans, graph};
  for (const auto& [rank, mine] : blocks) out.push_back(attribution.of(rank, mine));
  return out;
}

}  // namespace orrery
