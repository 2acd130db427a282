// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/uncontended_flows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace orrery {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;
constexpr double kFastest = 1e12;  // of caps, which are integers so that sums do not depend on their order
constexpr double kEqual = 1e-9;    // relative: shares that differ by less are the same
constexpr int kMostLevels = 8;

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
  client_ = &client, client_next_ps_ = start_ps;
  shared_.run(start_ps, *this);
}

/// An execution that ended with an error has left its flows.
void UncontendedFlows::reset() {
  ends_ = {};
  flows_.clear(), free_.clear(), sent_.clear(), eased_.clear(), entering_.clear();
  for (Link& l : links_) l.load = 0, l.num_shared = 0, l.flows.clear();
}

std::int64_t UncontendedFlows::advance(std::int64_t now_ps, std::span<const std::uint32_t> through) {
  through_.clear();
  for (std::uint32_t f : through)
    while (f != kNone) {
      const std::uint32_t next = flows_[f].next;
      for (const std::uint32_t l : flows_[f].links) --links_[l].num_shared;
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
  if (!through_.empty() || now_ps >= client_next_ps_) client_next_ps_ = client_->advance(now_ps, through_);
  settle(now_ps);
  return ends_.empty() ? client_next_ps_ : std::min(client_next_ps_, ends_.next_ps());
}

void UncontendedFlows::end(std::uint32_t f) {
  for (const std::uint32_t l : flows_[f].links) {
    if (links_[l].is_full() && !links_[l].flows.empty()) eased_.push_back(l);
    links_[l].load -= flows_[f].cap;
  }
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
  flow.message = message, flow.left = bytes, flow.next = kNone, flow.rate = {};
  place(f);
  sent_.push_back(f);
}

/// Its cap, which its links must have.
void UncontendedFlows::place(std::uint32_t f) {
  Flow& flow = flows_[f];
  flow.cap = INT64_MAX;
  for (const std::uint32_t l : flow.links) flow.cap = std::min(flow.cap, links_[l].capacity);
  for (const std::uint32_t l : flow.links) links_[l].load += flow.cap, links_[l].flows.push_back(f);
}

/// Those whose rate what has ended and begun at this instant may have changed, once all of it is known.
void UncontendedFlows::settle(std::int64_t now_ps) {
  ++epoch_;
  for (const std::uint32_t f : sent_) flows_[f].since_ps = now_ps;
  for (const std::uint32_t l : eased_) sent_.insert(sent_.end(), links_[l].flows.begin(), links_[l].flows.end());
  eased_.clear();
  for (const std::uint32_t f : sent_) {
    if (flows_[f].seen == epoch_) continue;
    gather(f);
    if (!find_rates())
      give_away(now_ps);
    else
      for (std::size_t i = 0; i < component_.size(); ++i)
        set_rate(component_[i], BytesPerSecond{rates_[i] / unit_}, now_ps);
  }
  sent_.clear();
  share();
}

/// The component of a flow: those that are connected with it by full links, and these.
void UncontendedFlows::gather(std::uint32_t first) {
  component_.assign(1, first), full_.clear();
  flows_[first].seen = epoch_;
  for (std::size_t i = 0; i < component_.size(); ++i)
    for (const std::uint32_t l : flows_[component_[i]].links) {
      if (!links_[l].is_full() || links_[l].seen == epoch_) continue;
      links_[l].seen = epoch_;
      full_.push_back(l);
      for (const std::uint32_t f : links_[l].flows)
        if (std::exchange(flows_[f].seen, epoch_) != epoch_) component_.push_back(f);
    }
}

/// Of the component, level by level: the least share that a link leaves each flow whose rate is open, or its cap, is
/// the rate of those flows. False where links are down, others share them already, or there are many levels.
bool UncontendedFlows::find_rates() {
  if (solved_ == SolvedFlows::All) return false;
  for (const std::uint32_t l : full_) {
    if (links_[l].num_shared > 0) return false;
    links_[l].left = double(links_[l].capacity), links_[l].open = std::ssize(links_[l].flows);
  }
  rates_.assign(component_.size(), -1);
  std::size_t num_open = component_.size();
  for (int level = 0; level < kMostLevels; ++level) {
    double rate = std::numeric_limits<double>::infinity();
    for (const std::uint32_t l : full_) rate = std::min(rate, links_[l].share());
    for (std::size_t i = 0; i < component_.size(); ++i)
      if (rates_[i] < 0) rate = std::min(rate, double(flows_[component_[i]].cap));
    if (rate <= 0) return false;
    num_open -= fill(rate);
    if (num_open == 0) return true;
  }
  return false;
}

/// Gives this rate to the flows that cannot have more. How many they are.
std::size_t UncontendedFlows::fill(double rate) {
  const double most = rate * (1 + kEqual);
  level_.clear();
  for (std::size_t i = 0; i < component_.size(); ++i) {
    const Flow& flow = flows_[component_[i]];
    if (rates_[i] < 0 && (double(flow.cap) <= most || std::any_of(flow.links.begin(), flow.links.end(), [&](auto l) {
                            return links_[l].is_full() && links_[l].share() <= most;
                          })))
      level_.push_back(i);
  }
  for (const std::size_t i : level_) {
    rates_[i] = rate;
    for (const std::uint32_t l : flows_[component_[i]].links) links_[l].left -= rate, --links_[l].open;
  }
  return level_.size();
}

void UncontendedFlows::set_rate(std::uint32_t f, BytesPerSecond rate, std::int64_t now_ps) {
  Flow& flow = flows_[f];
  if (flow.rate == rate) return;
  advance_to(flow, now_ps);
  flow.rate = rate;
  const std::int64_t duration = (SimTime{} + flow.left / rate).picoseconds();
  ends_.push(now_ps + std::max<std::int64_t>(1, duration), {f, ++flow.version});
}

void UncontendedFlows::advance_to(Flow& flow, std::int64_t now_ps) {
  flow.left -= flow.rate * (SimTime{now_ps} - SimTime{flow.since_ps});
  flow.since_ps = now_ps;
}

void UncontendedFlows::leave_links(std::uint32_t f) {
  for (const std::uint32_t l : flows_[f].links) {
    std::vector<std::uint32_t>& flows = links_[l].flows;
    *std::find(flows.rbegin(), flows.rend(), f) = flows.back();  // most often the last one
    flows.pop_back();
  }
}

/// The component is shared from now on.
void UncontendedFlows::give_away(std::int64_t now_ps) {
  for (const std::uint32_t f : component_) {
    leave_links(f);
    for (const std::uint32_t l : flows_[f].links) ++links_[l].num_shared;
    ++flows_[f].version;
    advance_to(flows_[f], now_ps);
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
