// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/chunk_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_map>

#include "sim/base/option_error.hpp"
#include "sim/base/units.hpp"

namespace orrery {
namespace {

class Cache {
 public:
  Cache(std::span<const std::int64_t> bytes, std::span<const CacheStep> steps, Eviction policy)
      : bytes_{bytes}, steps_{steps}, policy_{policy}, chunks_(bytes.size()) {
    for (std::size_t s = 0; s < steps.size(); ++s)
      for (const std::uint32_t c : steps[s].needed) chunks_[c].uses.push_back(static_cast<std::uint32_t>(s));
    if (policy == Eviction::Static) choose_fixed();
  }

  CachePlan run() {
    for (std::uint32_t s = 0; s < steps_.size(); ++s) run_step(s);
    for (std::uint32_t c = 0; c < chunks_.size(); ++c)
      if (chunks_[c].here) leave(static_cast<std::uint32_t>(steps_.size()), c, plan_.returned);
    return std::move(plan_);
  }

 private:
  struct Chunk {
    std::vector<std::uint32_t> uses;  // steps
    std::size_t next = 0;             // in uses
    bool here = false, fixed = false;
    std::uint64_t came = 0, used = 0;
  };

  std::int64_t needed_bytes(const CacheStep& step) const {
    std::int64_t sum = 0;
    for (const std::uint32_t c : step.needed) sum += bytes_[c];
    return sum;
  }

  void choose_fixed() {
    std::int64_t room = std::numeric_limits<std::int64_t>::max();
    for (const CacheStep& s : steps_) room = std::min(room, s.capacity - needed_bytes(s));
    for (std::uint32_t c = 0; c < chunks_.size(); ++c) {
      if (bytes_[c] > room) break;
      room -= bytes_[c];
      chunks_[c].fixed = true;
    }
  }

  void leave(std::uint32_t step, std::uint32_t chunk, std::int64_t& count) {
    plan_.events.push_back({step, chunk, false});
    chunks_[chunk].here = false;
    held_ -= bytes_[chunk];
    ++count;
  }

  /// What the policy goes by: the chunk with the largest rank leaves.
  std::uint64_t rank(const Chunk& c) const {
    constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();
    switch (policy_) {
      case Eviction::Belady:
        return c.next < c.uses.size() ? c.uses[c.next] : kLast;
      case Eviction::Lru:
        return kLast - c.used;
      case Eviction::Fifo:
        return kLast - c.came;
      case Eviction::Static:
        return c.fixed ? 0 : kLast - c.used;
      case Eviction::Order:
        return 0;
    }
    return 0;
  }

  void make_room(std::uint32_t s) {
    const CacheStep& step = steps_[s];
    std::int64_t coming = 0;
    for (const std::uint32_t c : step.needed) coming += chunks_[c].here ? 0 : bytes_[c];
    while (held_ + coming > step.capacity) {
      std::uint32_t victim = UINT32_MAX;
      for (std::uint32_t c = 0; c < chunks_.size(); ++c) {
        if (!chunks_[c].here || std::find(step.needed.begin(), step.needed.end(), c) != step.needed.end()) continue;
        if (victim == UINT32_MAX || rank(chunks_[c]) > rank(chunks_[victim])) victim = c;
      }
      if (victim == UINT32_MAX)
        throw OptionError{
            {"device_memory", "chunk"},
            step.capacity < 0
                ? fmt::format("what lies beside chunks is larger than the memory for both by {}",
                              to_text(Bytes{double(-step.capacity)}))
                : fmt::format("chunks that one op needs take {}, there is room for {}",
                              to_text(Bytes{double(needed_bytes(step))}), to_text(Bytes{double(step.capacity)})),
            "allow more device memory, use smaller chunks, or recompute activations"};
      leave(s, victim, plan_.evictions);
    }
  }

  void run_step(std::uint32_t s) {
    const CacheStep& step = steps_[s];
    for (const std::uint32_t c : step.banned)
      if (chunks_[c].here) leave(s, c, plan_.evictions);
    make_room(s);
    for (const std::uint32_t c : step.needed) {
      Chunk& chunk = chunks_[c];
      if (!chunk.here) {
        plan_.events.push_back({s, c, true});
        ++plan_.misses;
        chunk.here = true;
        chunk.came = ++clock_;
        held_ += bytes_[c];
      }
      chunk.used = ++clock_;
      while (chunk.next < chunk.uses.size() && chunk.uses[chunk.next] <= s) ++chunk.next;
    }
    plan_.most_bytes = std::max(plan_.most_bytes, held_);
    if (policy_ != Eviction::Static) return;
    for (const std::uint32_t c : step.needed)
      if (chunks_[c].here && !chunks_[c].fixed && !used_next(s, c)) leave(s + 1, c, plan_.evictions);
  }

  bool used_next(std::uint32_t s, std::uint32_t c) const {
    const Chunk& chunk = chunks_[c];
    return chunk.next < chunk.uses.size() && chunk.uses[chunk.next] == s + 1;
  }

  std::span<const std::int64_t> bytes_;
  std::span<const CacheStep> steps_;
  Eviction policy_;
  std::vector<Chunk> chunks_;
  CachePlan plan_;
  std::int64_t held_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace

CachePlan plan_cache(std::span<const std::int64_t> bytes, std::span<const CacheStep> steps, Eviction policy) {
  return Cache{bytes, steps, policy}.run();
}

namespace {

/// What is on the device at each step, while arrivals move to earlier ones.
class Ahead {
 public:
  Ahead(CachePlan& plan, std::span<const std::int64_t> bytes, std::span<const CacheStep> steps)
      : plan_{plan}, bytes_{bytes}, steps_{steps}, held_(steps.size() + 1, 0) {
    std::size_t next = 0;
    std::int64_t now = 0;
    for (std::size_t s = 0; s <= steps.size(); ++s) {
      for (; next < plan.events.size() && plan.events[next].step == s; ++next)
        now += plan.events[next].comes ? bytes[plan.events[next].chunk] : -bytes[plan.events[next].chunk];
      held_[s] = now;
    }
  }

  void run(std::int64_t ahead, bool stays) {
    if (ahead <= 0) return;
    std::unordered_map<std::uint32_t, std::size_t> left;  // per chunk: the event
    std::deque<std::uint32_t> came;                       // steps of the last arrivals
    for (std::size_t e = 0; e < plan_.events.size(); ++e) {
      CacheEvent& event = plan_.events[e];
      if (!event.comes) {
        left[event.chunk] = e;
        continue;
      }
      const auto gone = left.find(event.chunk);
      const std::uint32_t since = gone == left.end() ? 0 : plan_.events[gone->second].step + (stays ? 0 : 1);
      const std::uint32_t allowed = static_cast<std::int64_t>(came.size()) < ahead ? 0 : came.front();
      const std::uint32_t reached = earliest(event, std::max(since, allowed));
      for (std::uint32_t s = reached; s < event.step; ++s) held_[s] += bytes_[event.chunk];
      event.step = reached;
      if (stays && gone != left.end() && reached == since && !was_banned(event.chunk, since)) {
        drop(gone->second);
        drop(e);
        continue;
      }
      came.push_back(reached);
      if (static_cast<std::int64_t>(came.size()) > ahead) came.pop_front();
    }
    std::erase_if(plan_.events, [&](const CacheEvent& e) { return e.chunk == kDropped; });
    finish();
  }

  void run_first(const std::vector<bool>& marked) {
    std::vector<bool> came(bytes_.size());
    for (CacheEvent& event : plan_.events) {
      if (!event.comes || came[event.chunk]) continue;
      came[event.chunk] = true;
      if (!marked[event.chunk] || earliest(event, 0) > 0) continue;
      for (std::uint32_t s = 0; s < event.step; ++s) held_[s] += bytes_[event.chunk];
      event.step = 0;
    }
    finish();
  }

 private:
  void finish() {
    std::stable_sort(plan_.events.begin(), plan_.events.end(), [](const CacheEvent& a, const CacheEvent& b) {
      return a.step != b.step ? a.step < b.step : a.comes < b.comes;
    });
    plan_.most_bytes = held_.empty() ? 0 : *std::max_element(held_.begin(), held_.end());
  }

  static constexpr std::uint32_t kDropped = UINT32_MAX;

  bool was_banned(std::uint32_t chunk, std::uint32_t step) const {
    const auto& banned = steps_[step].banned;
    return std::find(banned.begin(), banned.end(), chunk) != banned.end();
  }

  std::uint32_t earliest(const CacheEvent& event, std::uint32_t least) const {
    std::uint32_t s = event.step;
    const auto can_be_earlier = [&] {
      return held_[s - 1] + bytes_[event.chunk] <= steps_[s - 1].capacity && !was_banned(event.chunk, s - 1) &&
             (s == steps_.size() || !was_banned(event.chunk, s));
    };
    while (s > least && can_be_earlier()) --s;
    return s;
  }

  void drop(std::size_t e) {
    CacheEvent& event = plan_.events[e];
    event.comes ? --plan_.misses : --plan_.evictions;
    event.chunk = kDropped;
  }

  CachePlan& plan_;
  std::span<const std::int64_t> bytes_;
  std::span<const CacheStep> steps_;
  std::vector<std::int64_t> held_;  // per step, behind its events
};

}  // namespace

void come_ahead(CachePlan& plan, std::span<const std::int64_t> bytes, std::span<const CacheStep> steps,
                std::int64_t ahead, bool stays) {
  Ahead{plan, bytes, steps}.run(ahead, stays);
}

void come_first(CachePlan& plan, std::span<const std::int64_t> bytes, std::span<const CacheStep> steps,
                const std::vector<bool>& marked) {
  Ahead{plan, bytes, steps}.run_first(marked);
}

}  // namespace orrery
