// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/meetings.hpp"

#include <map>
#include <tuple>
#include <unordered_map>

namespace orrery {
namespace {

/// Who meets: a communicator (its first rank) or a pair of ranks, in which instance, under which tag, for which time in
/// a row.
struct MeetingKey {
  std::uint32_t instance = 0;
  std::uint32_t kind = 0;  // of a collective: the group; of a message: UINT32_MAX
  RankId from, to;
  std::int64_t tag = 0;
  std::uint32_t sequence = 0;
  bool operator==(const MeetingKey&) const = default;
};

struct MeetingHash {
  std::size_t operator()(const MeetingKey& k) const {
    std::uint64_t h = k.instance;
    for (const std::uint64_t v : {std::uint64_t{k.kind}, std::uint64_t{k.from.value}, std::uint64_t{k.to.value},
                                  static_cast<std::uint64_t>(k.tag), std::uint64_t{k.sequence}})
      h = (h ^ v) * 0x9e3779b97f4a7c15ull + (h >> 29);
    return static_cast<std::size_t>(h ^ (h >> 32));
  }
};

/// Per op: how many ops of the same class meet the same partners before it.
std::vector<std::uint32_t> sequences(const PlanDigest& plan) {
  using Partners = std::tuple<ClassId, Meeting, std::int64_t, std::int64_t, std::int64_t>;
  std::map<Partners, std::uint32_t> seen;
  std::vector<std::uint32_t> out(plan.ops.size(), 0);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const OpDigest& op = plan.ops[i];
    const WorkDigest& w = plan.works[op.work];
    if (w.meeting == Meeting::Collective) {
      out[i] = seen[{op.rank_class, w.meeting, w.group.value, 0, 0}]++;
    } else if (w.meeting == Meeting::Send || w.meeting == Meeting::Receive) {
      const std::int64_t size = plan.mesh.axes[w.peer.axis].size;
      const std::int64_t offset = (w.peer.offset % size + size) % size;  // +1 and −1 are the same of two
      out[i] = seen[{op.rank_class, w.meeting, w.peer.axis, offset, w.tag}]++;
    }
  }
  return out;
}

/// Numbers the meetings of one plan's spans.
class Numbering {
 public:
  explicit Numbering(const PlanDigest& plan) : plan_{plan}, sequences_{sequences(plan)} {}

  std::uint32_t number(const Span& span, std::uint32_t& next) {
    const WorkDigest& w = plan_.work(span.op);
    const MeetingKey key = w.meeting == Meeting::Collective ? of_collective(span, w) : of_message(span, w);
    if (key.from.is_none()) return kNoSpan;
    const auto [it, is_new] = numbers_.try_emplace(key, next);
    if (is_new) ++next;
    return it->second;
  }

 private:
  MeetingKey of_collective(const Span& span, const WorkDigest& w) {
    const auto [it, is_new] = leaders_.try_emplace({w.group, span.rank}, RankId{});
    if (is_new) {
      const std::vector<RankId> ranks = members(plan_.mesh, plan_.groups[w.group.index()], span.rank);
      for (const RankId rank : ranks) leaders_[{w.group, rank}] = ranks.front();
      if (ranks.empty()) return {};
    }
    const RankId leader = leaders_[{w.group, span.rank}];
    return {span.instance, w.group.value, leader, leader, 0, sequences_[span.op.index()]};
  }

  MeetingKey of_message(const Span& span, const WorkDigest& w) const {
    const RankId peer = peer_of(plan_.mesh, span.rank, w.peer);
    const bool sends = w.meeting == Meeting::Send;
    return {span.instance,
            UINT32_MAX,
            sends ? span.rank : peer,
            sends ? peer : span.rank,
            w.tag,
            sequences_[span.op.index()]};
  }

  const PlanDigest& plan_;
  std::vector<std::uint32_t> sequences_;
  std::map<std::pair<GroupId, RankId>, RankId> leaders_;  // the first rank of a communicator
  std::unordered_map<MeetingKey, std::uint32_t, MeetingHash> numbers_;
};

bool meets(const WorkDigest& w) {
  return w.meeting == Meeting::Collective || w.meeting == Meeting::Send || w.meeting == Meeting::Receive;
}

}  // namespace

std::vector<std::uint32_t> number_meetings(const Timeline& timeline, const PlanDigests& plans, const SpanTable& table) {
  std::vector<std::uint32_t> out(timeline.spans.size(), kNoSpan);
  std::vector<Numbering> numberings;
  for (const PlanDigest& plan : plans) numberings.emplace_back(plan);
  std::uint32_t next = 0;
  for (const SpanIndex s : table.order()) {
    const Span& span = timeline.spans[s];
    const std::uint32_t plan = timeline.plan_of(span.instance);
    if (span.part == 0 && meets(plan_of(timeline, plans, span).work(span.op)))
      out[s] = numberings[plan].number(span, next);
  }
  return out;
}

}  // namespace orrery
