// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/enqueued_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/clock.hpp"
#include "runtime/cuda/collectives.hpp"
#include "runtime/cuda/crossing.hpp"
#include "runtime/peers.hpp"
#include "sim/base/error.hpp"

namespace orrery {

EnqueuedPlan::EnqueuedPlan(const Preparation& preparation, const Device& device, std::shared_ptr<GpuDriver> driver,
                           const Options& options)
    : PreparedPlan{preparation, device},
      driver_{std::move(driver)},
      options_{options},
      events_{*driver_},
      host_{*driver_} {
  rank_lanes_.resize(ranks_.size());
  for (RankRun& r : ranks_) {
    RankLanes& mine = rank_lanes_[r.rank.index()];
    mine.lanes.resize(r.program->lanes.size());
    mine.signals.resize(r.program->num_signals);
    for (std::size_t i = 0; i < mine.lanes.size(); ++i) {
      Lane& lane = mine.lanes[i];
      lane.rank = &r;
      lane.index = i;
      if (r.is_here()) lane.stream = {*driver_, driver_->make_stream(device_of(r.rank))};
    }
  }
  for (const auto& m : meetings_) seated_[m.get()].reserve(m->seats.size());
  if (options_.peers) connect();
}

int EnqueuedPlan::device_of(RankId rank) const { return static_cast<int>(rank.index()) % driver_->num_devices(); }

/// In the order of meetings, which is the same in all processes.
void EnqueuedPlan::connect() {
  check_crossings(meetings_, plan_, options_.graphs);
  std::vector<GpuGroup> groups;
  for (const auto& m : meetings_) {
    if (!m->crosses()) continue;
    GpuGroup group;
    for (const Meeting::Seat& s : m->seats) {
      if (s.is_here) group.here.push_back({static_cast<std::int32_t>(group.ranks.size()), device_of(s.rank)});
      group.ranks.push_back(s.rank.value);
    }
    groups.push_back(group);
    if (!group.here.empty()) crossing_[m.get()] = std::move(group);
  }
  driver_->connect(groups, options_.peers);
}

EnqueuedPlan::~EnqueuedPlan() = default;

GpuQueue EnqueuedPlan::queue_of(const Lane& lane) {
  return {.driver = *driver_,
          .host = host_,
          .stream = lane.stream.get(),
          .device = device_of(lane.rank->rank),
          .capability = options_.capability,
          .fast_f32 = options_.fast_f32,
          .captures = captures_,
          .quick_attention = options_.quick_attention};
}

void EnqueuedPlan::run_lanes(const Bindings& bindings) {
  bindings_ = &bindings;
  host_.bindings = &bindings;
  if (options_.graphs)
    run_graph();
  else
    enqueue_all();
  synchronize();
  if (records_spans_) collect_spans();
}

/// All lanes at their first op.
void EnqueuedPlan::start() {
  host_.reset();
  events_.reset();
  marked_.clear();
  left_ = 0;
  for (auto& [meeting, lanes] : seated_) lanes.assign(meeting->seats.size(), nullptr);
  for (RankLanes& r : rank_lanes_) {
    std::fill(r.signals.begin(), r.signals.end(), std::nullopt);
    r.origin = nullptr;
    for (Lane& lane : r.lanes) {
      lane.next = 0;
      lane.has_come = false;
      lane.gave = nullptr;
      lane.seen.assign(r.lanes.size(), nullptr);
      lane.timed.clear();
      left_ += lane.rank->program->lanes[lane.index].size();
    }
  }
  start_clocks();
}

void EnqueuedPlan::enqueue_all() {
  start();
  if (captures_) fork_and_join(false);
  while (left_ > 0) {
    bool moved = false;
    for (RankLanes& r : rank_lanes_) moved = advance(r) || moved;
    if (!moved) bug("a verified plan waits for itself");
  }
  if (captures_) fork_and_join(true);
}

/// Of each rank an event whose time on the host is known.
void EnqueuedPlan::start_clocks() {
  if (!records_spans_ || options_.activities) return;
  for (RankLanes& r : rank_lanes_) {
    if (r.lanes.empty() || !r.lanes.front().is_here()) continue;
    if (r.origin)
      driver_->record(r.origin, r.lanes.front().stream.get());
    else
      r.origin = events_.record(queue_of(r.lanes.front()));
    driver_->synchronize(r.lanes.front().stream.get());
    r.origin_ns = now_ns();
  }
}

bool EnqueuedPlan::is_ready(const RankLanes& r, const Lane& lane) const {
  if (lane.is_done() || lane.has_come) return false;
  const auto& waits = lane.op().waits;
  return std::all_of(waits.begin(), waits.end(), [&](std::uint32_t s) { return r.signals[s].has_value(); });
}

bool EnqueuedPlan::advance(RankLanes& r) {
  for (bool moved = false;; moved = true) {
    Lane* next = nullptr;
    for (Lane& lane : r.lanes)
      if (is_ready(r, lane) && (!next || lane.op().id < next->op().id)) next = &lane;
    if (!next) return moved;
    if (next->op().encounter == Encounter::None)
      enqueue(*next);
    else
      come(*next);
  }
}

/// Waits, on the stream, for the ops before this one and for the storage that it takes.
void EnqueuedPlan::begin_op(Lane& lane) {
  RankLanes& r = rank_of(lane);
  const OpRecord& op = lane.op();
  for (const std::uint32_t signal : op.waits) driver_->wait(lane.stream.get(), *r.signals[signal]);
  if (!op.takes.empty()) take_storage(r, lane);
}

void EnqueuedPlan::take_storage(RankLanes& r, Lane& lane) {
  for (const Lane& other : r.lanes) {
    if (&other == &lane || !other.gave || lane.seen[other.index] == other.gave) continue;
    driver_->wait(lane.stream.get(), other.gave);
    lane.seen[other.index] = other.gave;
  }
  lane.rank->memory->take(lane.op(), lane.rank->places.data());
  lane.rank->memory->sample(now_ns());
  if (captures_) captured_storage_.push_back({&lane, &lane.op(), true});
}

OpCall EnqueuedPlan::call_of(const Lane& lane, const OpRecord& op, GpuQueue& queue) const {
  OpCall call{.op = &op, .plan = &plan_, .bindings = bindings_, .places = lane.rank->places.data()};
  call.workspace = lane.rank->workspaces[static_cast<std::size_t>(op.stream)];
  call.queue = &queue;
  call.disk = lane.rank->memory->file();
  call.transfers = &lane.rank->memory->transfers();
  call.rank = lane.rank->rank;
  return call;
}

void EnqueuedPlan::enqueue(Lane& lane) {
  if (!lane.is_here()) return leave(lane);
  const OpRecord& op = lane.op();
  GpuQueue queue = queue_of(lane);
  if (options_.activities) {  // before it waits and takes storage: those calls are the op's as well
    marked_.push_back({op.id, static_cast<std::uint32_t>(&lane - rank_of(lane).lanes.data()) +
                                  static_cast<std::uint32_t>(lane.rank->rank.index() * kNumStreams)});
    driver_->mark(marked_.size());
  }
  begin_op(lane);
  if (records_spans_ && !options_.activities) lane.start = events_.stamp(queue);
  if (captures_) driver_->slot(static_cast<std::int64_t>(captured_.size()));
  op.kernel(call_of(lane, op, queue));
  if (captures_) driver_->slot(-1);
  if (options_.activities) driver_->mark(0);
  end_op(lane);
}

void EnqueuedPlan::come(Lane& lane) {
  if (lane.is_here()) begin_op(lane);
  lane.has_come = true;
  const Seat seat = lane.rank->seats[static_cast<std::size_t>(lane.op().meeting)];
  std::vector<Lane*>& members = seated_.at(seat.meeting);
  members[seat.member] = &lane;
  if (std::find(members.begin(), members.end(), nullptr) != members.end()) return;
  const auto elsewhere = std::stable_partition(members.begin(), members.end(), [](Lane* m) { return m->is_here(); });
  if (elsewhere != members.begin()) meet(*seat.meeting, {members.begin(), elsewhere});
  for (Lane* m : members) {
    m->has_come = false;
    if (m->is_here())
      end_op(*m);
    else
      leave(*m);
  }
}

/// All members of this process are asked for at once.
void EnqueuedPlan::meet(const Meeting& meeting, std::span<Lane* const> members) {
  std::vector<GpuQueue> queues;
  for (const Lane* m : members) queues.push_back(queue_of(*m));
  // The span of a meeting starts when all have come: after the slowest, as in the engine.
  for (std::size_t i = 0; i < members.size() && records_spans_ && !options_.activities; ++i) {
    for (const GpuQueue& other : queues)
      if (other.stream != queues[i].stream) driver_->wait(queues[i].stream, events_.record(other));
    members[i]->start = events_.stamp(queues[i]);
  }
  const std::size_t first_mark = marked_.size();
  if (options_.activities) {
    for (const Lane* m : members)
      marked_.push_back({m->op().id, static_cast<std::uint32_t>(m->index + m->rank->rank.index() * kNumStreams)});
    driver_->mark(first_mark + 1);
  }
  if (const auto group = crossing_.find(&meeting); group != crossing_.end())
    enqueue_crossing(meeting, group->second, queues, plan_);
  else
    enqueue_meeting(meeting, queues, events_);
  if (options_.activities) driver_->mark(0);
}

void EnqueuedPlan::end_op(Lane& lane) {
  RankLanes& r = rank_of(lane);
  const OpRecord& op = lane.op();
  const bool shares = r.lanes.size() > 1;
  const bool is_timed = records_spans_ && !options_.activities;
  GpuEvent end = nullptr;
  if (op.signal >= 0 || (shares && !op.gives_back.empty())) end = events_.record(queue_of(lane));
  if (op.signal >= 0) r.signals[static_cast<std::size_t>(op.signal)] = end;
  if (!op.gives_back.empty()) {
    if (shares) lane.gave = end;
    lane.rank->memory->give_back(op, lane.rank->places.data(), lane.rank->counters);
    lane.rank->memory->sample(now_ns());
    if (captures_) captured_storage_.push_back({&lane, &op, false});
  }
  if (is_timed) lane.timed.push_back({op.id, std::exchange(lane.start, nullptr), events_.stamp(queue_of(lane))});
  const Work& work = plan_.work(plan_[op.id]);
  // The host reads what is bound when it comes to its work, so that such an op stays as it is.
  if (captures_) captured_.push_back({&lane, &op, is_bound(work) && !runs_on_host(work)});
  leave(lane);
}

void EnqueuedPlan::leave(Lane& lane) {
  const std::int32_t signal = lane.op().signal;
  if (!lane.is_here() && signal >= 0) rank_of(lane).signals[static_cast<std::size_t>(signal)] = nullptr;
  ++lane.next;
  --left_;
}

void EnqueuedPlan::synchronize() {
  for (RankLanes& r : rank_lanes_)
    for (Lane& lane : r.lanes)
      if (lane.is_here()) driver_->synchronize(lane.stream.get());
  host_.check(plan_);
}

void EnqueuedPlan::collect_spans() {
  if (!options_.activities) {
    for (RankLanes& r : rank_lanes_)
      for (Lane& lane : r.lanes)
        if (lane.is_here()) resolve(r, lane);
    return;
  }
  const ActivityLog log = options_.activities->take();
  if (log.dropped > 0)
    throw DeviceError{
        fmt::format("{} records of plan '{}' were dropped, its spans would be too short: take them from "
                    "events, without --activities",
                    log.dropped, plan_.name)};
  if (options_.account) options_.account->add(log, marked_, plan_);
  const Joined joined = join_activities(log, marked_);
  for (std::size_t i = 0; i < marked_.size(); ++i) {
    const std::size_t rank = marked_[i].lane / kNumStreams, lane = marked_[i].lane % kNumStreams;
    ranks_[rank].spans[lane].push_back({joined.spans[i].start_ns, joined.spans[i].end_ns, marked_[i].op, instance_});
  }
}

void EnqueuedPlan::resolve(RankLanes& r, Lane& lane) {
  auto& spans = lane.rank->spans[lane.index];
  for (const TimedOp& t : lane.timed) {
    const std::int64_t start = r.origin_ns + driver_->nanoseconds(r.origin, t.start);
    spans.push_back({start, start + driver_->nanoseconds(t.start, t.end), t.op, instance_});
  }
}

/// What is on its way ends before its storage is given back; errors of that are those that are being reported.
void EnqueuedPlan::clean_up() {
  if (captures_) drop_capture();
  graph_.reset();  // storage that is taken anew may lie elsewhere
  for (RankLanes& r : rank_lanes_)
    for (Lane& lane : r.lanes) try {
        if (lane.is_here()) driver_->synchronize(lane.stream.get());
      } catch (const DeviceError&) {
      }
  PreparedPlan::clean_up();
}

}  // namespace orrery
