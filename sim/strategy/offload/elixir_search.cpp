// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/elixir_search.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

namespace orrery {

ElixirProfile ElixirProfile::of_a100(double n) {
  return {(16.3 * n + 8.7) * 1e9, (15.8 * n + 2.3) * 1e9, (5.15 + 1.66 * std::log(n)) * 1e9, 50e9 * n};
}

ElixirProfile ProfileOptions::over_a100(double ranks) const {
  ElixirProfile p = ElixirProfile::of_a100(ranks);
  const auto set = [](double& to, double value) { to = value > 0 ? value : to; };
  set(p.to_device, to_device.base());
  set(p.to_host, to_host.base());
  set(p.host_adam, host_adam);
  set(p.device_adam, device_adam);
  return p;
}

ElixirValues elixir_values(const ElixirProfile& p, double ranks, double weight_bytes, double master_bytes,
                           double state_bytes) {
  const double cached = weight_bytes / p.to_device + weight_bytes / p.to_host;
  const double ratio = (weight_bytes + state_bytes) / weight_bytes;
  const double saved =
      master_bytes / p.to_device + cached + weight_bytes / p.to_host + 1 / p.host_adam - 1 / p.device_adam;
  return {1e9 * cached, 1e9 * ranks / ratio * saved};
}

namespace {

/// Which chunk each tensor lies in; tensors alone in none.
std::vector<std::uint32_t> pack(const ElixirCase& c, std::int64_t chunk, std::uint32_t& count) {
  std::vector<std::uint32_t> out;
  std::int64_t used = chunk;
  count = 0;
  for (std::size_t i = 0; i < c.tensors.size(); ++i) {
    if (c.alone[i]) {
      out.push_back(UINT32_MAX);
      continue;
    }
    if (used + c.tensors[i] > chunk) ++count, used = 0;
    used += c.tensors[i];
    out.push_back(count - 1);
  }
  return out;
}

using Steps = std::vector<std::vector<std::uint32_t>>;

/// Chunks that each op needs; ops that need the same as the one before are left out.
Steps steps_of(const ElixirCase& c, const std::vector<std::uint32_t>& chunk_of) {
  Steps out;
  for (const auto& tensors : c.steps) {
    std::vector<std::uint32_t> needed;
    for (const std::uint32_t t : tensors)
      if (chunk_of[t] != UINT32_MAX) needed.push_back(chunk_of[t]);
    std::sort(needed.begin(), needed.end());
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    if (!needed.empty() && (out.empty() || out.back() != needed)) out.push_back(std::move(needed));
  }
  return out;
}

/// Chunks that leave when the one needed last always does (Belady), and those there at the end; none: an op needs more
/// blocks than there are.
std::optional<std::int64_t> moves(const Steps& steps, std::uint32_t chunks, std::int64_t blocks) {
  std::vector<std::uint32_t> next_of(chunks, UINT32_MAX);
  std::vector<std::vector<std::uint32_t>> next(steps.size());  // per step and chunk: its next use
  for (std::size_t s = steps.size(); s-- > 0;)
    for (const std::uint32_t k : steps[s]) {
      next[s].push_back(next_of[k]);
      next_of[k] = static_cast<std::uint32_t>(s);
    }
  std::set<std::pair<std::uint32_t, std::uint32_t>> here;  // by next use
  std::vector<std::uint32_t> use(chunks, UINT32_MAX);      // of those that are here
  std::vector<bool> is_here(chunks, false);
  std::int64_t evictions = 0;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (static_cast<std::int64_t>(steps[s].size()) > blocks) return std::nullopt;
    for (const std::uint32_t k : steps[s])
      if (is_here[k]) here.erase({use[k], k});  // those that are needed never leave for each other
    std::int64_t pinned = static_cast<std::int64_t>(steps[s].size());
    while (static_cast<std::int64_t>(here.size()) + pinned > blocks) {
      const auto victim = std::prev(here.end());
      is_here[victim->second] = false;
      here.erase(victim);
      ++evictions;
    }
    for (std::size_t i = 0; i < steps[s].size(); ++i) {
      const std::uint32_t k = steps[s][i];
      is_here[k] = true;
      use[k] = next[s][i];
      here.emplace(use[k], k);
    }
  }
  return evictions + static_cast<std::int64_t>(here.size());
}

std::int64_t blocks_of(const ElixirCase& c, std::int64_t chunk) {
  return static_cast<std::int64_t>(std::floor(double(c.capacity) / double(chunk) - c.scratch));
}

}  // namespace

void elixir_spend(const ElixirCase& c, std::int64_t chunks, std::int64_t least_blocks, ElixirChoice& choice) {
  const double state_cost = c.state_ratio / double(c.ranks);  // in chunks
  const double room = std::max(0.0, double(blocks_of(c, choice.chunk)));
  const std::int64_t spare = c.overlap ? 2 : 0;
  // Chunks that stay are computed where they are and need no block.
  const auto blocks_for = [&](std::int64_t resident) { return std::min(chunks - resident, chunks); };
  std::int64_t kept = least_blocks + spare;
  if (c.states_first) {
    const std::int64_t region = (c.region + choice.chunk - 1) / choice.chunk + 1;
    kept = std::max(kept, std::max<std::int64_t>(4, region) + spare);
  } else {
    kept = std::max(kept, chunks);
  }
  const auto fits = [&](std::int64_t resident) {
    return double(std::min(kept, blocks_for(resident))) + state_cost * double(resident) <= room;
  };
  std::int64_t resident = 0;
  while (resident < chunks && fits(resident + 1)) ++resident;
  choice.resident = resident;
  const auto left = static_cast<std::int64_t>(room - state_cost * double(resident));
  choice.blocks = std::clamp<std::int64_t>(left, 0, blocks_for(resident));
}

ElixirChoice elixir_search(const ElixirCase& c) {
  std::int64_t largest = 1, count = 0;
  for (std::size_t i = 0; i < c.tensors.size(); ++i)
    if (!c.alone[i]) largest = std::max(largest, c.tensors[i]), ++count;
  std::int64_t low = std::max<std::int64_t>(c.least, 1);
  while (low < largest) low *= 2;
  const std::int64_t high = 3 * low;
  const double parts = 2 * std::exp2(std::ceil(std::log2(double(std::max<std::int64_t>(count, 1)))));
  const auto step = std::max(c.grain, static_cast<std::int64_t>(double(high - low) * parts / double(1 << 24)));
  ElixirChoice best;
  std::vector<std::uint32_t> packed;
  std::int64_t packed_blocks = -1;
  for (std::int64_t chunk = low; chunk <= high; chunk += step) {
    std::uint32_t chunks = 0;
    std::vector<std::uint32_t> now = pack(c, chunk, chunks);
    const std::int64_t spare = c.overlap ? 2 : 0;
    const std::int64_t blocks = std::min<std::int64_t>(blocks_of(c, chunk) - spare, chunks);
    if (now == packed && blocks == packed_blocks) continue;  // the same moves, of more elements
    const Steps steps = steps_of(c, now);
    packed = std::move(now);
    packed_blocks = blocks;
    const std::optional<std::int64_t> moved = moves(steps, chunks, blocks);
    if (!moved) continue;
    if (best.chunk > 0 && 2 * *moved * chunk >= best.moved) continue;
    std::size_t least = 1;
    for (const auto& s : steps) least = std::max(least, s.size());
    best = {.chunk = chunk, .moved = 2 * *moved * chunk};
    elixir_spend(c, chunks, static_cast<std::int64_t>(least), best);
  }
  return best;
}

}  // namespace orrery
