// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/activities.hpp"

#include <algorithm>

namespace orrery {

/// t_host = h₀ + (t − d₀)·(h₁ − h₀)/(d₁ − d₀): both clocks count nanoseconds, so only the difference of their rates is
/// multiplied, and no digits are lost.
std::int64_t host_time(const ActivityLog& log, std::int64_t device_ns) {
  const std::int64_t passed = device_ns - log.first.device_ns, device = log.last.device_ns - log.first.device_ns,
                     host = log.last.host_ns - log.first.host_ns;
  const double drift = device > 0 ? static_cast<double>(host - device) / static_cast<double>(device) : 0.0;
  return log.first.host_ns + passed + static_cast<std::int64_t>(static_cast<double>(passed) * drift);
}

namespace {

void count_call(ActivityAccount::Calls& calls, const Activity& a) {
  switch (a.kind) {
    case Activity::Kind::HostWait:
      ++calls.waits;
      calls.wait_ns += a.end_ns - a.start_ns;
      return;
    case Activity::Kind::StreamWait:
      ++calls.stream_waits;
      return;
    case Activity::Kind::Allocation:
      ++calls.allocations;
      calls.allocated += a.bytes;
      return;
    default:
      ++calls.releases;
      calls.released += a.bytes;
  }
}

}  // namespace

void ActivityAccount::add(const ActivityLog& log, std::span<const MarkedOp> marked, const Plan& plan) {
  for (const Activity& a : log.activities) {
    if (a.kind == Activity::Kind::Kernel) {
      ++kernels;
    } else if (a.kind == Activity::Kind::Copy) {
      ++copies;
      copied += a.bytes;
    } else if (a.kind == Activity::Kind::Fill) {
      ++fills;
      filled += a.bytes;
    } else if (a.mark == 0 || a.mark > marked.size()) {
      count_call(outside, a);
    } else {
      count_call(of_op[std::string{plan.name_of(plan[marked[a.mark - 1].op])}], a);
    }
  }
}

Joined join_activities(const ActivityLog& log, std::span<const MarkedOp> marked) {
  Joined joined;
  joined.spans.resize(marked.size());
  for (const Activity& a : log.activities) {
    if (a.mark == 0 || !a.is_on_device()) continue;
    if (a.mark > marked.size()) {
      ++joined.unknown;
      continue;
    }
    JoinedSpan& span = joined.spans[a.mark - 1];
    const std::int64_t start = host_time(log, a.start_ns), end = host_time(log, a.end_ns);
    span.start_ns = span.is_measured ? std::min(span.start_ns, start) : start;
    span.end_ns = span.is_measured ? std::max(span.end_ns, end) : end;
    span.is_measured = true;
  }
  std::map<std::uint32_t, std::int64_t> end_of_lane;
  for (std::size_t i = 0; i < marked.size(); ++i) {
    JoinedSpan& span = joined.spans[i];
    auto& end = end_of_lane.try_emplace(marked[i].lane, log.first.host_ns).first->second;
    if (!span.is_measured) span.start_ns = span.end_ns = end;
    end = std::max(end, span.end_ns);
  }
  return joined;
}

}  // namespace orrery
