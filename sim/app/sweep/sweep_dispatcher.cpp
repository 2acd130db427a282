// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_dispatcher.hpp"

#include <algorithm>
#include <numeric>

namespace orrery {
namespace {

constexpr std::size_t kMostAtOnce = 64, kRounds = 4;

}  // namespace

SweepDispatcher::SweepDispatcher(const std::vector<double>& work, int most_failures)
    : points_(work.size()), waiting_(work.size()), most_failures_{most_failures} {
  std::iota(waiting_.begin(), waiting_.end(), std::size_t{0});
  std::stable_sort(waiting_.begin(), waiting_.end(), [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
  std::reverse(waiting_.begin(), waiting_.end());
}

void SweepDispatcher::join(WorkerKey worker, std::size_t slots) {
  workers_[worker] = {std::max<std::size_t>(slots, 1), {}};
}

/// A fourth of a worker's share of what is left, so that all end at about the same time.
std::size_t SweepDispatcher::chunk(const Worker& worker, std::size_t idle) const {
  std::size_t slots = 0;
  for (const auto& [key, w] : workers_) slots += w.slots;
  const std::size_t share = waiting_.size() * worker.slots / (kRounds * slots);
  return std::max(idle, std::clamp<std::size_t>(share, 1, kMostAtOnce));
}

std::vector<std::size_t> SweepDispatcher::take(WorkerKey key, std::size_t idle) {
  Worker& worker = workers_.at(key);
  std::vector<std::size_t> taken;
  const auto give = [&](std::size_t p) {
    ++points_[p].holders;
    worker.held.push_back(p);
    taken.push_back(p);
  };
  for (std::size_t left = chunk(worker, idle); left > 0 && !waiting_.empty(); --left) {
    const std::size_t p = waiting_.back();
    waiting_.pop_back();
    if (!points_[p].ended) give(p);
  }
  if (!taken.empty()) return taken;
  for (auto& [other, w] : workers_) {
    if (other == key) continue;
    // What was given first has been worked on for longest: begin with what has not been begun.
    for (auto p = w.held.rbegin(); p != w.held.rend() && taken.size() < idle; ++p)
      if (points_[*p].holders == 1) give(*p);
  }
  return taken;
}

bool SweepDispatcher::drop(Worker& worker, std::size_t p) {
  const auto found = std::find(worker.held.begin(), worker.held.end(), p);
  if (found == worker.held.end()) return false;
  worker.held.erase(found);
  --points_[p].holders;
  return true;
}

void SweepDispatcher::end(std::size_t p) {
  points_[p].ended = true;
  ++ended_;
}

bool SweepDispatcher::finish(WorkerKey key, std::size_t p) {
  (void)drop(workers_.at(key), p);
  if (points_.at(p).ended) return false;
  end(p);
  return true;
}

bool SweepDispatcher::count_failure(std::size_t p) {
  Point& point = points_[p];
  if (point.ended) return false;
  if (++point.failures >= most_failures_) {
    end(p);
    return true;
  }
  if (point.holders == 0) waiting_.insert(waiting_.begin(), p);  // behind those that may well succeed
  return false;
}

bool SweepDispatcher::fail(WorkerKey key, std::size_t p) { return drop(workers_.at(key), p) && count_failure(p); }

std::vector<std::size_t> SweepDispatcher::held_first(WorkerKey key) const {
  const auto found = workers_.find(key);
  if (found == workers_.end()) return {};
  const Worker& w = found->second;
  return {w.held.begin(), w.held.begin() + static_cast<std::ptrdiff_t>(std::min(w.slots, w.held.size()))};
}

std::vector<std::size_t> SweepDispatcher::leave(WorkerKey key) {
  const auto found = workers_.find(key);
  if (found == workers_.end()) return {};
  const Worker worker = std::move(found->second);
  workers_.erase(found);
  std::vector<std::size_t> given_up;
  for (const std::size_t p : worker.held) --points_[p].holders;
  for (std::size_t i = worker.held.size(); i-- > 0;) {
    const std::size_t p = worker.held[i];
    if (i < worker.slots) {
      if (count_failure(p)) given_up.push_back(p);
    } else if (!points_[p].ended && points_[p].holders == 0) {
      waiting_.push_back(p);
    }
  }
  return given_up;
}

}  // namespace orrery
