// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/uncontended_flows.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace orrery {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;
constexpr double kFastest = 1e12;  // of caps, which are integers so that sums do not depend on their order

}  // namespace

UncontendedFlows::UncontendedFlows(const Topology& topology, SharedLinks& shared, SolvedFlows solved)
    : topology_{topology}, shared_{shared}, solved_{solved}, links_(topology.links().size()) {
  BytesPerSecond fastest;
  for (const TopologyLink& l : topology.links()) fastest = std::max(fastest, l.bandwidth);
  if (fastest > BytesPerSecond{0}) unit_ = kFastest / fastest.base();
  for (std::size_t i = 0; i < links_.size(); ++i)
    links_[i].capacity = std::llround(topology.links()[i].bandwidth.base() * unit_);
}

void UncontendedFlows::run(std::int64_t start_ps, Network::Client& client) {
  reset();
  client_ = &client;
  shared_.run(start_ps, *this);
}

/// An execution that ended with an error has left its flows.
void UncontendedFlows::reset() {
  ends_ = {};
  flows_.clear(), free_.clear(), sent_.clear(), entering_.clear();
  for (Link& l : links_) l.load = 0, l.flows.clear();
}

std::int64_t UncontendedFlows::advance(std::int64_t now_ps, std::span<const std::uint32_t> through) {
  through_.clear();
  for (std::uint32_t f : through)
    while (f != kNone) {
      const std::uint32_t next = flows_[f].next;
      end(f);
      f = next;
    }
  while (!ends_.empty() && ends_.next_ps() <= now_ps) {
    ends_.pop(fired_);
    for (const EventQueue::Fired& timer : fired_) {
      if (flows_[timer.id].version != timer.version) continue;
      leave_links(timer.id);
      end(timer.id);
    }
  }
  const std::int64_t next_ps = client_->advance(now_ps, through_);
  admit(now_ps);
  return ends_.empty() ? next_ps : std::min(next_ps, ends_.next_ps());
}

void UncontendedFlows::end(std::uint32_t f) {
  for (const std::uint32_t l : flows_[f].links) links_[l].load -= flows_[f].cap;
  ++flows_[f].version;
  through_.push_back(flows_[f].message);
  free_.push_back(f);
}

void UncontendedFlows::send(std::uint32_t message, RankId from, RankId to, const Way&, Bytes bytes) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const std::uint32_t f = free_.back();
  Flow& flow = flows_[f];
  flow.links.clear();
  topology_.route(from, to, flow.links);
  free_.pop_back();
  flow.message = message, flow.left = bytes, flow.next = kNone;
  place(f);
  sent_.push_back(f);
}

/// Its cap, which its links must have.
void UncontendedFlows::place(std::uint32_t f) {
  Flow& flow = flows_[f];
  flow.cap = INT64_MAX;
  for (const std::uint32_t l : flow.links)
    if (links_[l].capacity < flow.cap) flow.cap = links_[l].capacity, flow.rate = topology_.links()[l].bandwidth;
  for (const std::uint32_t l : flow.links) links_[l].load += flow.cap;
}

bool UncontendedFlows::is_held_back(const Flow& flow) const {
  return flow.cap == 0 || solved_ == SolvedFlows::All ||
         std::any_of(flow.links.begin(), flow.links.end(), [&](std::uint32_t l) { return links_[l].is_full(); });
}

/// What has been sent at this instant, once all of it is known.
void UncontendedFlows::admit(std::int64_t now_ps) {
  for (const std::uint32_t f : sent_) {
    if (!is_held_back(flows_[f])) {
      begin_alone(f, now_ps);
      continue;
    }
    entering_.push_back(f);
    for (const std::uint32_t l : flows_[f].links)
      if (links_[l].is_full()) take_from(links_[l], now_ps);
  }
  sent_.clear();
  share();
}

void UncontendedFlows::begin_alone(std::uint32_t f, std::int64_t now_ps) {
  Flow& flow = flows_[f];
  flow.since_ps = now_ps;
  for (const std::uint32_t l : flow.links) links_[l].flows.push_back(f);
  const std::int64_t duration = (SimTime{} + flow.left / flow.rate).picoseconds();
  ends_.push(now_ps + std::max<std::int64_t>(1, duration), {f, flow.version});
}

void UncontendedFlows::leave_links(std::uint32_t f) {
  for (const std::uint32_t l : flows_[f].links) {
    std::vector<std::uint32_t>& flows = links_[l].flows;
    *std::find(flows.rbegin(), flows.rend(), f) = flows.back();  // most often the last one
    flows.pop_back();
  }
}

/// The link holds its flows back from now on.
void UncontendedFlows::take_from(Link& link, std::int64_t now_ps) {
  while (!link.flows.empty()) {
    const std::uint32_t f = link.flows.back();
    Flow& flow = flows_[f];
    leave_links(f);
    ++flow.version;
    flow.left = flow.left - flow.rate * (SimTime{now_ps} - SimTime{flow.since_ps});
    entering_.push_back(f);
  }
}

/// Equal flows as one.
void UncontendedFlows::share() {
  const auto key = [this](std::uint32_t f) { return std::tie(flows_[f].left, flows_[f].links); };
  if (solved_ == SolvedFlows::Contended)
    std::stable_sort(entering_.begin(), entering_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  for (std::size_t first = 0, end = 0; first < entering_.size(); first = end) {
    Flow& flow = flows_[entering_[first]];
    for (end = first + 1; end < entering_.size() && solved_ == SolvedFlows::Contended; ++end) {
      if (key(entering_[end]) != key(entering_[first])) break;
      flows_[entering_[end]].next = std::exchange(flow.next, entering_[end]);
    }
    shared_.start(entering_[first], flow.links, static_cast<std::uint32_t>(end - first), flow.left);
  }
  entering_.clear();
}

}  // namespace orrery
