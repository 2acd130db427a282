// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/meetings.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// Who meets: a communicator (its first rank) or a pair of ranks, in which instance, under which tag.
struct MeetingKey {
  std::uint32_t instance = 0;
  std::uint32_t kind = 0;  // of a collective: the group; of a message: UINT32_MAX
  RankId from, to;
  std::int64_t tag = 0;
  auto operator<=>(const MeetingKey&) const = default;
};

using Partners = std::tuple<MeetingKind, std::int64_t, std::int64_t, std::int64_t>;

Partners partners_of(const PlanDigest& plan, const WorkDigest& w) {
  if (w.meeting == MeetingKind::Collective) return {w.meeting, w.group.value, 0, 0};
  const std::int64_t size = plan.mesh.axes[w.peer.axis].size;
  const std::int64_t offset = (w.peer.offset % size + size) % size;  // +1 and −1 are the same of two
  return {w.meeting, w.peer.axis, offset, w.tag};
}

bool meets(const WorkDigest& w) {
  return w.meeting == MeetingKind::Collective || w.meeting == MeetingKind::Send || w.meeting == MeetingKind::Receive;
}

/// Per work of a plan: a number of those who meet at it; kNoSpan: nobody.
std::vector<std::uint32_t> partners_of_works(const PlanDigest& plan) {
  std::map<Partners, std::uint32_t> numbers;
  std::vector<std::uint32_t> out(plan.works.size(), kNoSpan);
  for (std::size_t w = 0; w < plan.works.size(); ++w)
    if (meets(plan.works[w]))
      out[w] = numbers.try_emplace(partners_of(plan, plan.works[w]), numbers.size()).first->second;
  return out;
}

/// How many ops of the same class meet the same partners before an op. Ops are asked for in order.
class Sequence {
 public:
  Sequence(const PlanDigest& plan, const std::vector<std::uint32_t>& partners)
      : plan_{plan}, partners_{partners}, seen_(partners.size()) {}

  void restart() { next_ = end_ = 0; }
  std::uint32_t of(OpId op) {
    if (op.index() < next_ || op.index() >= end_) enter_class(op);
    const std::span<const Op> ops = plan_.ops;
    for (const Op& o : ops.subspan(next_, op.index() - next_))
      if (const std::uint32_t p = partners_[o.work.index()]; p != kNoSpan) ++seen_[p];
    next_ = op.index();
    return seen_[partners_[plan_[op].work.index()]];
  }

 private:
  /// That of the op, which may be in none: nothing is before it then.
  void enter_class(OpId op) {
    const ClassId c = plan_.class_of(op);
    next_ = c.is_none() ? op.index() : plan_.classes[c.index()].first_op;
    end_ = c.is_none() ? next_ : next_ + plan_.classes[c.index()].num_ops;
    std::fill(seen_.begin(), seen_.end(), 0u);
  }

  const PlanDigest& plan_;
  const std::vector<std::uint32_t>& partners_;  // per work
  std::vector<std::uint32_t> seen_;             // of each partners, before next_
  std::size_t next_ = 0, end_ = 0;              // ops of the class at hand
};

/// Numbers the meetings of one plan's spans.
class Numbering {
 public:
  Numbering(const PlanDigest& plan, const Patterns& patterns, const std::vector<RankId>& recorded)
      : plan_{plan},
        patterns_{patterns},
        recorded_{recorded},
        partners_{partners_of_works(plan)},
        sequence_{plan, partners_},
        known_(plan.groups.size()) {}
  Numbering(const Numbering&) = delete;  // the sequence refers to the partners

  /// The spans that follow are of this rank and instance.
  void set_rank(RankId rank) {
    leaders_ = &leaders_of_.try_emplace(rank, plan_.groups.size()).first->second;
    series_of_work_.assign(plan_.works.size(), kUnknown);
    places_of_pattern_.assign(patterns_.size(), std::nullopt);
    met_.assign(partners_.size(), 0);
    sequence_.restart();
  }

  /// Calls `add(span, number)` for the spans of a block that take part in meetings with others who were recorded.
  template <class Add>
  void number(const Spans& spans, const SpanList& list, std::uint32_t& next, const Add& add) {
    const std::span<const Op> ops = plan_.ops;
    for (const SpanIndex s : list) {
      const Span& span = spans[s];
      const WorkId work = ops[span.op.index()].work;
      if (span.part != 0 || partners_[work.index()] == kNoSpan) continue;
      if (const std::uint32_t series = series_of(span, work); series != kNoSpan)
        add(s, number_in(series, sequence_.of(span.op), next));
    }
  }

  /// Whether each op of a class was recorded up to the last that was.
  bool begins_a_class(const Spans& spans, const SpanTable::Block& block) const {
    const OpId first = spans[block.first].op;
    const ClassId c = plan_.class_of(first);
    return block.is_in_line && !c.is_none() && plan_.classes[c.index()].first_op == first.value &&
           block.last - block.first <= plan_.classes[c.index()].num_ops;
  }

  /// The same for a block that begins a class.
  template <class Add>
  void number_in_line(const Spans& spans, const SpanTable::Block& block, std::uint32_t& next, const Add& add) {
    const std::uint32_t first_op = spans[block.first].op.value;
    for (const Patterns::Piece& piece : patterns_.pieces(first_op, block.last - block.first)) {
      const SpanIndex first = block.first + (piece.first - first_op);
      for (const Place& p : places_of(piece, spans[first]))
        add(first + p.op, number_in(p.series, met_[p.partners]++, next));
    }
  }

 private:
  static constexpr std::uint32_t kUnknown = kNoSpan - 1;
  /// Where a piece has an op that meets others who were recorded.
  struct Place {
    std::uint32_t op = 0;  // counted in the piece
    std::uint32_t partners = 0, series = 0;
  };

  /// On the rank at hand; `first` is the span of the first op.
  const std::vector<Place>& places_of(const Patterns::Piece& piece, const Span& first) {
    if (piece.pattern == Patterns::kNone) {
      find_places(piece, first, places_);
      return places_;
    }
    std::optional<std::vector<Place>>& known = places_of_pattern_[piece.pattern];
    if (!known) find_places(piece, first, known.emplace());
    return *known;
  }

  void find_places(const Patterns::Piece& piece, const Span& first, std::vector<Place>& out) {
    out.clear();
    const std::span<const Op> ops = plan_.ops;
    Span span = first;
    for (std::uint32_t i = 0; i < piece.num_ops; ++i) {
      span.op = OpId{std::size_t{piece.first} + i};
      const WorkId work = ops[span.op.index()].work;
      const std::uint32_t partners = partners_[work.index()];
      const std::uint32_t series = partners == kNoSpan ? kNoSpan : series_of(span, work);
      if (series != kNoSpan) out.push_back({i, partners, series});
    }
  }

  std::uint32_t number_in(std::uint32_t series, std::uint32_t sequence, std::uint32_t& next) {
    std::vector<std::uint32_t>& numbers = numbers_[series];
    while (numbers.size() <= sequence) numbers.push_back(kNoSpan);
    if (numbers[sequence] == kNoSpan) numbers[sequence] = next++;
    return numbers[sequence];
  }

  /// That of the work on the rank at hand.
  std::uint32_t series_of(const Span& span, WorkId work) {
    std::uint32_t& series = series_of_work_[work.index()];
    if (series == kUnknown) series = series_of(span);
    return series;
  }

  /// Those who meet at the ops of a work on one rank have a series of meetings, numbered by how often they do; kNoSpan
  /// where nobody else was recorded.
  std::uint32_t series_of(const Span& span) {
    const WorkDigest& w = plan_.work(span.op);
    const MeetingKey key = w.meeting == MeetingKind::Collective ? of_collective(span, w) : of_message(span, w);
    if (key.from.is_none()) return kNoSpan;
    const auto [it, is_new] = series_.try_emplace(key, static_cast<std::uint32_t>(numbers_.size()));
    if (is_new) numbers_.emplace_back();
    return it->second;
  }

  MeetingKey of_collective(const Span& span, const WorkDigest& w) {
    std::optional<RankId>& leader = (*leaders_)[w.group.index()];
    if (!leader) leader = leader_of(span.rank, w.group);
    return {span.instance, w.group.value, *leader, *leader, 0};
  }

  /// The first rank of a communicator; none where no other of its ranks was recorded.
  RankId leader_of(RankId rank, GroupId group) {
    Communicator& known = known_[group.index()];
    if (std::find(known.ranks.begin(), known.ranks.end(), rank) != known.ranks.end()) return known.leader;
    known.ranks = members(plan_.mesh, plan_.groups[group.index()], rank);
    const auto count = std::count_if(known.ranks.begin(), known.ranks.end(), [&](RankId r) {
      return std::binary_search(recorded_.begin(), recorded_.end(), r);
    });
    return known.leader = count < 2 ? RankId{} : known.ranks.front();
  }

  MeetingKey of_message(const Span& span, const WorkDigest& w) const {
    const RankId peer = peer_of(plan_.mesh, span.rank, w.peer);
    const bool sends = w.meeting == MeetingKind::Send;
    return {span.instance, UINT32_MAX, sends ? span.rank : peer, sends ? peer : span.rank, w.tag};
  }

  using Leaders = std::vector<std::optional<RankId>>;  // per group
  struct Communicator {
    std::vector<RankId> ranks;
    RankId leader;
  };
  const PlanDigest& plan_;
  const Patterns& patterns_;
  const std::vector<RankId>& recorded_;
  std::vector<std::uint32_t> partners_;  // per work
  Sequence sequence_;
  std::vector<Communicator> known_;  // per group: the last that was asked for
  std::map<RankId, Leaders> leaders_of_;
  Leaders* leaders_ = nullptr;
  std::map<MeetingKey, std::uint32_t> series_;
  std::vector<std::uint32_t> series_of_work_;                         // of the rank at hand
  std::vector<std::optional<std::vector<Place>>> places_of_pattern_;  // the same
  std::vector<std::uint32_t> met_;                                    // the same, per partners: how often
  std::vector<Place> places_;                                         // of the piece at hand
  std::vector<std::vector<std::uint32_t>> numbers_;                   // per series: of its meetings; kNoSpan: none yet
};

}  // namespace

Meetings::Meetings(const Timeline& timeline, const PlanDigests& plans, const SpanTable& table,
                   const std::vector<Patterns>& patterns) {
  const std::vector<RankId> recorded = table.ranks();
  std::deque<Numbering> numberings;
  for (std::size_t p = 0; p < plans.size(); ++p) numberings.emplace_back(plans[p], patterns[p], recorded);
  std::vector<Numbered> meet;
  const auto add = [&](SpanIndex s, std::uint32_t number) { meet.emplace_back(s, number); };
  std::uint32_t next = 0;
  for (const SpanTable::Block& block : table.blocks()) {
    if (timeline.plan_of(block.instance) >= plans.size()) bug("a timeline refers to a plan that is not in the list");
    Numbering& numbering = numberings[timeline.plan_of(block.instance)];
    numbering.set_rank(block.rank);
    if (numbering.begins_a_class(timeline.spans, block))
      numbering.number_in_line(timeline.spans, block, next, add);
    else
      numbering.number(timeline.spans, table.of(block), next, add);
  }
  if (!std::is_sorted(meet.begin(), meet.end())) std::sort(meet.begin(), meet.end());
  meets_.resize(timeline.spans.size() / kWord + 1);
  keep(meet, next);
}

void Meetings::keep(std::span<const Numbered> meet, std::size_t count) {
  number_.reserve(meet.size());
  first_.assign(count + 1, 0);
  for (const auto& [s, number] : meet) {
    meets_[s / kWord] |= std::uint64_t{1} << s % kWord;
    number_.push_back(number);
    ++first_[number + 1];
  }
  before_.reserve(meets_.size());
  std::uint32_t before = 0;
  for (const std::uint64_t word : meets_) {
    before_.push_back(before);
    before += static_cast<std::uint32_t>(std::popcount(word));
  }
  for (std::size_t i = 0; i < count; ++i) first_[i + 1] += first_[i];
  spans_.resize(meet.size());
  std::vector<std::uint32_t> next{first_.begin(), first_.end() - 1};
  for (const auto& [s, number] : meet) spans_[next[number]++] = s;
}

}  // namespace orrery
