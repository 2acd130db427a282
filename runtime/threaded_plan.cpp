// SPDX-License-Identifier: Apache-2.0
#include "runtime/threaded_plan.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/clock.hpp"
#include "runtime/subnormals.hpp"

namespace orrery {

std::unique_ptr<DeviceMemory> Device::memory(Tier, RankId) const { return nullptr; }

std::unique_ptr<PreparedPlan> Device::prepare(const Preparation& preparation) const {
  return std::make_unique<ThreadedPlan>(preparation, *this);
}

ThreadedPlan::ThreadedPlan(const Preparation& preparation, const Device& device)
    : PreparedPlan{preparation, device},
      workers_{preparation.workers},
      pace_{preparation.options.pace},
      watches_cores_{preparation.options.watch_cores} {
  for (RankRun& r : ranks_) {
    const std::size_t lanes = r.program->lanes.size();
    for (std::size_t lane = 0; lane < lanes; ++lane) tasks_.push_back({&r, lane});
    shares_ranks_ = shares_ranks_ || lanes > 1;
  }
  if (tasks_.size() > 1) workers_.reserve(tasks_.size());
}

void ThreadedPlan::run_lanes(const Bindings& bindings) {
  bindings_ = &bindings;
  ++round_;
  error_ = nullptr;
  if (tasks_.size() == 1)
    run(0);
  else if (tasks_.size() > 1)
    workers_.run(*this, tasks_.size());
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadedPlan::run(std::size_t task) noexcept {
  const SubnormalsAreZero in_this_thread;
  try {
    run_lane(*tasks_[task].run, tasks_[task].lane);
  } catch (const Cancelled&) {  // another thread tells why
  } catch (...) {
    cancel(std::current_exception());
  }
}

void ThreadedPlan::cancel(std::exception_ptr error) {
  {
    const std::lock_guard lock{error_mutex_};
    if (!error_) error_ = std::move(error);
  }
  for (RankRun& r : ranks_)
    for (Signal& s : r.signals) s.cancel();
  for (auto& m : meetings_) {
    m->before.cancel();
    m->after.cancel();
    for (std::size_t i = 0; i < m->seats.size(); ++i) m->progress[i].cancel();
  }
}

void ThreadedPlan::clean_up() {
  PreparedPlan::clean_up();
  round_ = 0;
  for (RankRun& r : ranks_)
    for (Signal& s : r.signals) s.reset();
  for (auto& m : meetings_) {
    m->before.reset();
    m->after.reset();
  }
}

std::int64_t ThreadedPlan::take_storage(const OpRecord& op, RankRun& r) {
  std::unique_lock<std::mutex> lock;
  if (shares_ranks_) lock = std::unique_lock{r.memory->mutex()};
  r.memory->take(op, r.places.data());
  const std::int64_t now = now_ns();
  r.memory->sample(now);
  return now;
}

void ThreadedPlan::give_storage_back(const OpRecord& op, RankRun& r, std::int64_t at_ns) {
  std::unique_lock<std::mutex> lock;
  if (shares_ranks_) lock = std::unique_lock{r.memory->mutex()};
  r.memory->give_back(op, r.places.data(), r.counters);
  r.memory->sample(at_ns);
}

/// A span of a collective or message starts when all have come: until then the stream is idle, as in the engine.
std::int64_t ThreadedPlan::meet(const OpRecord& op, OpCall& call, const RankRun& r) {
  const Seat seat = r.seats[static_cast<std::size_t>(op.meeting)];
  const auto seats = static_cast<std::uint32_t>(seat.meeting->seats.size());
  call.meeting = seat.meeting;
  call.member = seat.member;
  seat.meeting->progress[seat.member].reset();
  seat.meeting->before.pass(seats, round_);
  const std::int64_t start = now_ns();
  op.kernel(call);
  seat.meeting->after.pass(seats, round_);
  return start;
}

namespace {

/// Sleeps, so that other lanes have the cores meanwhile.
void hold(std::int64_t until_ns) {
  if (const std::int64_t left = until_ns - now_ns(); left > 0)
    std::this_thread::sleep_for(std::chrono::nanoseconds{left});
}

}  // namespace

/// One thread of each rank sees how its core does: that of the compute stream.
bool ThreadedPlan::watches(const RankRun& r, std::size_t lane) const {
  const std::vector<OpRecord>& ops = r.program->lanes[lane];
  return watches_cores_ &&
         std::any_of(ops.begin(), ops.end(), [](const OpRecord& op) { return op.stream == Stream::Compute; });
}

void ThreadedPlan::run_lane(RankRun& r, std::size_t lane) {
  const bool watched = watches(r, lane);
  if (watched) r.cores.push_back(sample_core(instance_));
  OpCall call{.plan = &plan_, .bindings = bindings_, .places = r.places.data()};
  call.disk = r.memory->file();
  call.links = &links_;
  call.transfers = &r.memory->transfers();
  call.rank = r.rank;
  for (const OpRecord& op : r.program->lanes[lane]) {
    for (std::uint32_t signal : op.waits) r.signals[signal].wait(round_);
    call.op = &op;
    call.workspace = r.workspaces[static_cast<std::size_t>(op.stream)];
    std::int64_t start = op.takes.empty() ? now_ns() : take_storage(op, r);
    if (op.encounter == Encounter::None)
      op.kernel(call);
    else
      start = meet(op, call, r);
    if (pace_) hold(start + static_cast<std::int64_t>(pace_(plan_, op.id, *bindings_, r.rank).base() * 1e9));
    const std::int64_t end = now_ns();
    if (records_spans_) r.spans[lane].push_back({start, end, op.id, instance_});
    if (!op.gives_back.empty()) give_storage_back(op, r, end);
    if (op.signal >= 0) r.signals[static_cast<std::size_t>(op.signal)].raise(round_);
    if (watched && is_due(r.cores.back(), end)) r.cores.push_back(sample_core(instance_));
  }
  if (watched) r.cores.push_back(sample_core(instance_));
}

}  // namespace orrery
