// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/lifetime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "sim/base/option_error.hpp"
#include "sim/base/units.hpp"

namespace orrery {

CachePlan visit_per_pass(std::span<const CacheStep> steps, std::span<const std::uint32_t> passes, std::size_t chunks) {
  struct Visit {
    std::uint32_t pass = UINT32_MAX, first = 0, last = 0;
  };
  std::vector<Visit> open(chunks);
  CachePlan out;
  const auto close = [&](std::uint32_t k) {
    if (open[k].pass == UINT32_MAX) return;
    out.events.push_back({open[k].first, k, true});
    out.events.push_back({open[k].last + 1, k, false});
    ++out.misses;
    ++out.evictions;
  };
  for (std::uint32_t s = 0; s < steps.size(); ++s)
    for (const std::uint32_t k : steps[s].needed) {
      if (open[k].pass != passes[s]) {
        close(k);
        open[k] = {passes[s], s, s};
      }
      open[k].last = s;
    }
  for (std::uint32_t k = 0; k < chunks; ++k) close(k);
  std::stable_sort(out.events.begin(), out.events.end(), [](const CacheEvent& a, const CacheEvent& b) {
    return a.step != b.step ? a.step < b.step : a.comes < b.comes;
  });
  return out;
}

std::vector<std::int64_t> held_bytes(const CachePlan& plan, std::span<const std::int64_t> bytes, std::size_t steps) {
  std::vector<std::int64_t> out(steps + 1, 0);
  for (const CacheEvent& e : plan.events) out[e.step] += e.comes ? bytes[e.chunk] : -bytes[e.chunk];
  std::partial_sum(out.begin(), out.end(), out.begin());
  return out;
}

CachePlan schedule_lifetimes(std::span<const std::int64_t> bytes, std::span<const CacheStep> steps,
                             std::span<const std::uint32_t> passes) {
  CachePlan plan = visit_per_pass(steps, passes, bytes.size());
  const std::vector<std::int64_t> held = held_bytes(plan, bytes, steps.size());
  for (std::size_t s = 0; s < steps.size(); ++s)
    if (held[s] > std::max<std::int64_t>(steps[s].capacity, 0))
      throw OptionError{{"device_memory"},
                        fmt::format("pages that one op needs on the device take {}, there is room for {}",
                                    to_text(Bytes{double(held[s])}),
                                    to_text(Bytes{double(std::max<std::int64_t>(steps[s].capacity, 0))})),
                        "allow more device memory, or recompute activations"};
  come_ahead(plan, bytes, steps, std::numeric_limits<std::int64_t>::max(), true);
  return plan;
}

std::vector<bool> choose_residents(const CachePlan& plan, const ChunkTrace& trace, std::span<const CacheStep> steps) {
  const std::size_t chunks = trace.layout.size();
  std::vector<std::int64_t> slack = held_bytes(plan, trace.weight_bytes, steps.size());
  for (std::size_t s = 0; s < steps.size(); ++s) slack[s] = steps[s].capacity - slack[s];
  slack.pop_back();
  std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> stays(chunks);
  for (const CacheEvent& e : plan.events)
    if (e.comes)
      stays[e.chunk].emplace_back(e.step, 0);
    else
      stays[e.chunk].back().second = e.step;
  std::vector<std::uint32_t> order(chunks);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return trace.layout.sizes[a] > trace.layout.sizes[b]; });
  std::vector<bool> out(chunks, false);
  std::int64_t taken = 0;  // by weights and states of those chosen
  const auto give = [&](std::uint32_t k, std::int64_t bytes) {
    for (const auto& [first, end] : stays[k])
      for (std::uint32_t s = first; s < std::min<std::size_t>(end, slack.size()); ++s) slack[s] += bytes;
  };
  for (const std::uint32_t k : order) {
    const std::int64_t cost = trace.weight_bytes[k] + trace.state_bytes[k];
    give(k, trace.weight_bytes[k]);
    const std::int64_t room = slack.empty() ? 0 : *std::min_element(slack.begin(), slack.end());
    out[k] = taken + cost <= room;
    if (out[k])
      taken += cost;
    else
      give(k, -trace.weight_bytes[k]);
  }
  return out;
}

void leave_out(CachePlan& plan, const std::vector<bool>& chunks) {
  std::erase_if(plan.events, [&](const CacheEvent& e) {
    if (!chunks[e.chunk]) return false;
    --(e.comes ? plan.misses : plan.evictions);
    return true;
  });
}

}  // namespace orrery
