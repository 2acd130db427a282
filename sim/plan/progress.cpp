// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/progress.hpp"

#include <bit>
#include <map>
#include <tuple>
#include <unordered_map>

#include "sim/plan/stretches.hpp"

namespace orrery {
namespace {

/// Per stream: how many of its meetings have been passed.
using Clock = std::array<std::uint32_t, kNumStreams>;

/// An op at which a rank may have to wait for others. All other ops pass by themselves: what matters of them is which
/// meetings they put in order.
struct MeetingOp {
  std::uint32_t op = 0;  // counted from the first of its class
  WorkId work;
  std::uint32_t number = 0;  // of a collective: how many of its group its class issues before it; of messages: of works
  Clock after{};             // that must have been passed
};
using Queues = std::array<std::vector<MeetingOp>, kNumStreams>;

/// The meetings of a class, found in one walk in plan order.
class MeetingWalk {
 public:
  MeetingWalk(const Plan& plan, const OpOrder& order, const RankClass& c, const std::vector<bool>& meets)
      : plan_{plan},
        class_{c},
        order_{order},
        waits_{order.waits_of(c)},
        meetings_{ops_that_do(plan, c, meets)},
        saved_of_(c.num_ops, kUnwanted),
        counts_((c.num_ops + kWord - 1) / kWord) {
    fresh_.fill(true);
    find_dependencies();
    for (const DoingOp& m : meetings_) count(m.op - c.first_op);
  }

  Queues run() {
    for (std::size_t w = 0; w < counts_.size(); ++w)
      for (std::uint64_t left = counts_[w]; left != 0; left &= left - 1)
        pass(static_cast<std::uint32_t>(w * kWord) + static_cast<std::uint32_t>(std::countr_zero(left)));
    return std::move(queues_);
  }

 private:
  static constexpr std::size_t kWord = 64;

  void count(std::uint32_t i) { counts_[i / kWord] |= std::uint64_t{1} << i % kWord; }

  void find_dependencies() {
    for (const WaitingOp& w : waits_) {
      count(w.op - class_.first_op);
      for (const OpId d : w.deps(plan_)) {
        saved_of_[d.index() - class_.first_op] = kWanted;
        count(static_cast<std::uint32_t>(d.index() - class_.first_op));
      }
    }
  }

  void pass(std::uint32_t i) {
    const std::uint32_t op = class_.first_op + i;
    const WaitingOp* const wait =
        next_wait_ < waits_.size() && waits_[next_wait_].op == op ? &waits_[next_wait_++] : nullptr;
    const bool meets = next_meeting_ < meetings_.size() && meetings_[next_meeting_].op == op;
    const auto s = static_cast<std::size_t>(order_.stream_of(OpId{std::size_t{op}}));
    if (wait != nullptr)
      for (const OpId d : wait->deps(plan_)) join(s, saved_[saved_of_[d.index() - class_.first_op]]);
    if (meets) {
      const WorkId work = meetings_[next_meeting_++].work;
      const auto* c = std::get_if<Collective>(&plan_.works[work.index()]);
      queues_[s].push_back({i, work, c != nullptr ? issued_[c->group.value]++ : number_of(work), known_[s]});
      known_[s][s] = static_cast<std::uint32_t>(queues_[s].size());
      fresh_[s] = true;
    }
    if (saved_of_[i] == kUnwanted) return;
    if (fresh_[s]) {
      last_saved_[s] = static_cast<std::uint32_t>(saved_.size());
      saved_.push_back(known_[s]);
      fresh_[s] = false;
    }
    saved_of_[i] = last_saved_[s];
  }

  /// Messages of a work are all to or from the same rank, with the same tag.
  std::uint32_t number_of(WorkId work) {
    return numbers_.try_emplace(work.value, static_cast<std::uint32_t>(numbers_.size())).first->second;
  }

  void join(std::size_t s, const Clock& other) {
    for (std::size_t t = 0; t < other.size(); ++t) {
      if (other[t] <= known_[s][t]) continue;
      known_[s][t] = other[t];
      fresh_[s] = true;
    }
  }

  const Plan& plan_;
  const RankClass& class_;
  static constexpr std::uint32_t kUnwanted = UINT32_MAX, kWanted = UINT32_MAX - 1;
  const OpOrder& order_;
  std::span<const WaitingOp> waits_;
  std::vector<DoingOp> meetings_;
  std::size_t next_wait_ = 0, next_meeting_ = 0;
  std::vector<std::uint32_t> saved_of_;     // per op: its place in saved_; kUnwanted: nothing comes after it
  std::vector<std::uint64_t> counts_;       // one bit per op: it meets others, waits, or something comes after it
  std::vector<Clock> saved_;                // what has been passed when an op has ended
  std::array<Clock, kNumStreams> known_{};  // at the latest op of each stream
  std::array<bool, kNumStreams> fresh_{};   // whether that has changed since it was saved last
  std::array<std::uint32_t, kNumStreams> last_saved_{};
  std::map<std::uint16_t, std::uint32_t> issued_;             // collectives, by group
  std::unordered_map<std::uint32_t, std::uint32_t> numbers_;  // of works that are messages; never iterated
  Queues queues_;
};

class Progress {
 public:
  Progress(const Plan& plan, const OpOrder& order, const ReducedMesh& reduced)
      : plan_{plan}, mesh_{reduced}, class_of_{reduced.class_of_rank} {
    ranks_.resize(class_of_.size());
    find_communicators();
    const std::vector<bool> meets = meeting_works();
    for (const RankClass& c : plan.classes) queues_.push_back(MeetingWalk{plan, order, c, meets}.run());
  }

  std::vector<Standstill> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        for (std::size_t s = 0; s < kNumStreams; ++s)
          while (step(r, s, moved)) moved = true;
    }
    std::vector<Standstill> out;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (std::size_t s = 0; s < kNumStreams; ++s)
        if (ranks_[r].at[s] < queue(r, s).size())
          out.push_back({mesh_.original[r], OpId{class_of(r).first_op + queue(r, s)[ranks_[r].at[s]].op}});
    return out;
  }

 private:
  static constexpr std::uint32_t kUnknown = UINT32_MAX;
  struct Channel {
    std::uint32_t here = kUnknown, there = kUnknown;
  };
  struct Rank {
    Clock at{};                                // next meeting of each stream
    std::array<bool, kNumStreams> standing{};  // it has been counted as arrived there
    std::vector<Channel> channels;             // by the number of its messages' work
  };
  struct Communicator {
    std::size_t size = 0;
    std::vector<std::uint32_t> arrived;  // per collective, in order
  };
  using Message = std::tuple<bool, std::size_t, std::size_t, std::int64_t>;  // is it the send, from, to, tag

  const RankClass& class_of(std::size_t r) const { return plan_.classes[class_of_[r].index()]; }
  const std::vector<MeetingOp>& queue(std::size_t r, std::size_t s) const { return queues_[class_of_[r].index()][s]; }

  /// Per work: whether some rank may have to wait there for another one.
  std::vector<bool> meeting_works() const {
    std::vector<bool> alone(mesh_.groups.size(), true);
    for (std::size_t g = 0; g < alone.size(); ++g)
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        alone[g] = alone[g] && communicators_[seats_[r * alone.size() + g]].size <= 1;
    std::vector<bool> out;
    for (const Work& w : plan_.works) {
      const auto* c = std::get_if<Collective>(&w);
      out.push_back(c != nullptr ? !alone[c->group.index()]
                                 : std::holds_alternative<Send>(w) || std::holds_alternative<Recv>(w));
    }
    return out;
  }

  /// Passes the next meeting of a stream if nothing holds it; `moved` is set when it newly stands there.
  bool step(std::size_t r, std::size_t s, bool& moved) {
    Rank& rank = ranks_[r];
    if (rank.at[s] == queue(r, s).size()) return false;
    const MeetingOp& m = queue(r, s)[rank.at[s]];
    for (std::size_t t = 0; t < kNumStreams; ++t)
      if (rank.at[t] < m.after[t]) return false;
    const bool arrives = !rank.standing[s];
    if (!meets(r, m, arrives)) {
      moved = moved || arrives;
      rank.standing[s] = true;
      return false;
    }
    rank.standing[s] = false;
    ++rank.at[s];
    return true;
  }

  /// Whether all partners of an op stand at it; counts this one when it `arrives`.
  bool meets(std::size_t r, const MeetingOp& m, bool arrives) {
    if (const auto* c = std::get_if<Collective>(&plan_.works[m.work.index()]))
      return meets_group(r, *c, m.number, arrives);
    return meets_partner(channel_of(r, m), arrives);
  }

  /// Ranks meet at the k-th collective of their communicator in plan order, on whatever streams.
  bool meets_group(std::size_t r, const Collective& c, std::uint32_t k, bool arrives) {
    Communicator& mine = communicators_[seats_[r * mesh_.groups.size() + c.group.index()]];
    if (mine.size <= 1) return true;
    if (mine.arrived.size() <= k) mine.arrived.resize(k + 1, 0);
    if (arrives) ++mine.arrived[k];
    return mine.arrived[k] >= mine.size;
  }

  bool meets_partner(const Channel& mine, bool arrives) {
    if (arrives) ++messages_[mine.here];
    return messages_[mine.there] >= messages_[mine.here];
  }

  void find_communicators() {
    seats_.assign(ranks_.size() * mesh_.groups.size(), 0);
    communicators_.resize(1);  // of ranks outside
    for (std::size_t g = 0; g < mesh_.groups.size(); ++g)
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const auto all = members(mesh_.mesh, mesh_.groups[g], RankId{r});
        if (all.empty() || all.front() != RankId{r}) continue;
        for (const RankId m : all)
          seats_[m.index() * mesh_.groups.size() + g] = static_cast<std::uint32_t>(communicators_.size());
        communicators_.push_back({all.size(), {}});
      }
  }

  /// Counters of the messages that arrive like this one, and of those that arrive at the other end.
  const Channel& channel_of(std::size_t r, const MeetingOp& op) {
    std::vector<Channel>& channels = ranks_[r].channels;
    if (channels.size() <= op.number) channels.resize(op.number + 1);
    Channel& channel = channels[op.number];
    if (channel.here != kUnknown) return channel;
    const auto number = [&](const Message& m) {
      const auto [at, fresh] = numbers_.try_emplace(m, static_cast<std::uint32_t>(numbers_.size()));
      if (fresh) messages_.push_back(0);
      return at->second;
    };
    const auto* send = std::get_if<Send>(&plan_.works[op.work.index()]);
    const auto* recv = std::get_if<Recv>(&plan_.works[op.work.index()]);
    const std::size_t peer = peer_of(mesh_.mesh, RankId{r}, send ? send->peer : recv->peer).index();
    const std::size_t from = send ? r : peer, to = send ? peer : r;
    const std::int64_t tag = send ? send->tag : recv->tag;
    return channel = {number({send != nullptr, from, to, tag}), number({send == nullptr, from, to, tag})};
  }

  const Plan& plan_;
  const ReducedMesh& mesh_;
  const std::vector<ClassId>& class_of_;
  std::vector<Queues> queues_;
  std::vector<Rank> ranks_;
  std::vector<Communicator> communicators_;
  std::vector<std::uint32_t> seats_;  // per rank and group: its communicator
  std::map<Message, std::uint32_t> numbers_;
  std::vector<std::uint32_t> messages_;  // that have arrived
};

}  // namespace

std::vector<Standstill> find_standstills(const Plan& plan, const OpOrder& order, const ReducedMesh& ranks) {
  return Progress{plan, order, ranks}.run();
}

}  // namespace orrery
