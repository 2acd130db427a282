// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/meetings.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

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

using Partners = std::tuple<Meeting, std::int64_t, std::int64_t, std::int64_t>;

Partners partners_of(const PlanDigest& plan, const WorkDigest& w) {
  if (w.meeting == Meeting::Collective) return {w.meeting, w.group.value, 0, 0};
  const std::int64_t size = plan.mesh.axes[w.peer.axis].size;
  const std::int64_t offset = (w.peer.offset % size + size) % size;  // +1 and −1 are the same of two
  return {w.meeting, w.peer.axis, offset, w.tag};
}

bool meets(const WorkDigest& w) {
  return w.meeting == Meeting::Collective || w.meeting == Meeting::Send || w.meeting == Meeting::Receive;
}

/// Per op: how many ops of the same class meet the same partners before it.
std::vector<std::uint32_t> sequences(const PlanDigest& plan) {
  std::map<Partners, std::uint32_t> numbers;
  std::vector<std::uint32_t> number_of_work(plan.works.size(), kNoSpan);
  for (std::size_t w = 0; w < plan.works.size(); ++w)
    if (meets(plan.works[w]))
      number_of_work[w] = numbers.try_emplace(partners_of(plan, plan.works[w]), numbers.size()).first->second;
  std::vector<std::uint32_t> out(plan.ops.size(), 0), seen(numbers.size(), 0);
  for (const RankClass& c : plan.classes) {
    std::fill(seen.begin(), seen.end(), 0u);
    for (std::size_t i = c.first_op; i < c.first_op + std::size_t{c.num_ops}; ++i)
      if (const std::uint32_t number = number_of_work[plan.ops[i].work.index()]; number != kNoSpan)
        out[i] = seen[number]++;
  }
  return out;
}

/// Numbers the meetings of one plan's spans.
class Numbering {
 public:
  Numbering(const PlanDigest& plan, const std::vector<RankId>& recorded)
      : plan_{plan}, recorded_{recorded}, sequences_{sequences(plan)} {}

  /// The spans that follow are of this rank and instance.
  void set_rank(RankId rank) {
    leaders_ = &leaders_of_.try_emplace(rank, plan_.groups.size()).first->second;
    series_of_work_.assign(plan_.works.size(), kUnknown);
  }

  std::uint32_t number(const Span& span, std::uint32_t& next) {
    std::uint32_t& series = series_of_work_[plan_[span.op].work.index()];
    if (series == kUnknown) series = series_of(span);
    if (series == kNoSpan) return kNoSpan;
    std::vector<std::uint32_t>& numbers = numbers_[series];
    const std::uint32_t sequence = sequences_[span.op.index()];
    if (sequence >= numbers.size()) numbers.resize(sequence + 1, kNoSpan);
    if (numbers[sequence] == kNoSpan) numbers[sequence] = next++;
    return numbers[sequence];
  }

 private:
  static constexpr std::uint32_t kUnknown = kNoSpan - 1;

  /// Those who meet at the ops of a work on one rank have a series of meetings, numbered by how often they do; kNoSpan
  /// where nobody else was recorded.
  std::uint32_t series_of(const Span& span) {
    const WorkDigest& w = plan_.work(span.op);
    const MeetingKey key = w.meeting == Meeting::Collective ? of_collective(span, w) : of_message(span, w);
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
  RankId leader_of(RankId rank, GroupId group) const {
    const std::vector<RankId> ranks = members(plan_.mesh, plan_.groups[group.index()], rank);
    const auto count = std::count_if(ranks.begin(), ranks.end(), [&](RankId r) {
      return std::binary_search(recorded_.begin(), recorded_.end(), r);
    });
    return count < 2 ? RankId{} : ranks.front();
  }

  MeetingKey of_message(const Span& span, const WorkDigest& w) const {
    const RankId peer = peer_of(plan_.mesh, span.rank, w.peer);
    const bool sends = w.meeting == Meeting::Send;
    return {span.instance, UINT32_MAX, sends ? span.rank : peer, sends ? peer : span.rank, w.tag};
  }

  using Leaders = std::vector<std::optional<RankId>>;  // per group
  const PlanDigest& plan_;
  const std::vector<RankId>& recorded_;
  std::vector<std::uint32_t> sequences_;
  std::map<RankId, Leaders> leaders_of_;
  Leaders* leaders_ = nullptr;
  std::map<MeetingKey, std::uint32_t> series_;
  std::vector<std::uint32_t> series_of_work_;        // of the rank at hand
  std::vector<std::vector<std::uint32_t>> numbers_;  // per series: of its meetings; kNoSpan: none yet
};

}  // namespace

std::vector<std::uint32_t> number_meetings(const Timeline& timeline, const PlanDigests& plans, const SpanTable& table) {
  std::vector<std::uint32_t> out(timeline.spans.size(), kNoSpan);
  const std::vector<RankId> recorded = ranks_of(timeline);
  std::vector<Numbering> numberings;
  for (const PlanDigest& plan : plans) numberings.emplace_back(plan, recorded);
  std::uint32_t next = 0;
  for (const SpanTable::Block& block : table.blocks()) {
    const PlanDigest& plan = plan_of(timeline, plans, timeline.spans[table.of(block).front()]);
    Numbering& numbering = numberings[timeline.plan_of(block.instance)];
    numbering.set_rank(block.rank);
    for (const SpanIndex s : table.of(block))
      if (const Span& span = timeline.spans[s]; span.part == 0 && meets(plan.work(span.op)))
        out[s] = numbering.number(span, next);
  }
  return out;
}

}  // namespace orrery
