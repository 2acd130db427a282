// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/serve_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "sim/base/error.hpp"
#include "sim/base/parallel.hpp"

namespace orrery {
namespace {

constexpr std::string_view kSchedulers[] = {"vllm_v1", "sarathi", "vllm_v0"};
constexpr std::int64_t kSequences[] = {64, 256}, kTokens[] = {512, 2048, 8192};

/// All ways with one number of ranks a replica: they share their times.
class RanksSearch {
 public:
  RanksSearch(const ServeSearchRequest& r, std::int64_t tp)
      : r_{r},
        tp_{tp},
        strategy_{find_strategy("parallel").make(parse_yaml(fmt::format("{{mesh: tp{}}}", tp), "tp"))},
        times_{{.model = r.model,
                .strategy = *strategy_,
                .wiring = r.wiring,
                .cluster = r.cluster,
                .profile = r.profile,
                .options = r.options}} {}

  /// The cheapest of each scheduler with each limits.
  std::vector<ServeCandidate> run(std::int64_t gpus) {
    std::vector<ServeCandidate> all;
    const std::int64_t most = gpus / tp_;
    for (const std::string_view scheduler : kSchedulers)
      for (const std::int64_t sequences : kSequences)
        for (const std::int64_t tokens : kTokens) {
          ServeCandidate c{
              .tp = tp_, .scheduler = std::string{scheduler}, .max_sequences = sequences, .max_tokens = tokens};
          if (!fits(c)) continue;
          if (const auto found = fewest(c, most, &ServeCandidate::replicas)) all.push_back(*found);
        }
    if (r_.disaggregate && most > 1) split(most, all);
    return all;
  }
  std::int64_t simulations() const { return simulations_; }

 private:
  ReplicaOptions replica(const ServeCandidate& c) const {
    ReplicaOptions o = r_.options.replica;
    o.scheduler = c.scheduler;
    o.max_sequences = c.max_sequences;
    o.max_tokens = c.max_tokens;
    return o;
  }
  bool fits(const ServeCandidate& c) const { return times_.memory(replica(c)).blocks > 0; }

  void judge(ServeCandidate& c) {
    ++simulations_;
    ServeOptions o = r_.options;
    o.replica = replica(c);
    o.replicas = c.replicas;
    o.prefill_replicas = c.prefill_replicas;
    const auto source = make_requests(o.traffic, context_of(r_.model, o));
    const KvBlocks::Sizes blocks = times_.memory(o.replica).pool_of(o.replica);
    const ServingResult s = serve({.options = o, .blocks = blocks, .source = *source, .times = times_});
    c.within = s.requests > 0 ? double(s.within_slo) / double(s.requests) : 0;
    c.ttft = s.ttft.quantile(r_.attain);
    c.tpot = s.tpot.quantile(r_.attain);
    c.goodput = s.goodput();
    c.kv = s.peak_kv;
    c.meets = c.within >= r_.attain && !s.is_overloaded();
  }

  /// Bisection over a number of replicas; where not even the most are enough, the way with the most of them.
  std::optional<ServeCandidate> fewest(ServeCandidate c, std::int64_t most, std::int64_t ServeCandidate::*number) {
    if (most < 1) return {};
    c.*number = most;
    judge(c);
    if (!c.meets) return c;
    ServeCandidate best = c;
    for (std::int64_t low = 1, high = most; low < high;) {
      c.*number = (low + high) / 2;
      judge(c);
      if (c.meets) {
        best = c;
        high = c.*number;
      } else {
        low = c.*number + 1;
      }
    }
    return best;
  }

  /// Prompts on replicas of their own: for each number of those the fewest that decode, as long as that is cheaper.
  void split(std::int64_t most, std::vector<ServeCandidate>& all) {
    const ServeCandidate* cheapest = nullptr;
    for (const ServeCandidate& c : all)
      if (c.meets && (!cheapest || c.gpus() < cheapest->gpus())) cheapest = &c;
    const std::int64_t room = cheapest ? cheapest->gpus() / tp_ : most;
    std::optional<ServeCandidate> best;
    for (std::int64_t prefill = 1; prefill < room; prefill *= 2) {
      ServeCandidate c{.tp = tp_,
                       .prefill_replicas = prefill,
                       .scheduler = "vllm_v1",
                       .max_sequences = kSequences[1],
                       .max_tokens = kTokens[2]};
      if (!fits(c)) return;
      const auto found = fewest(c, room - prefill, &ServeCandidate::replicas);
      if (found && found->meets && (!best || found->gpus() < best->gpus())) best = found;
    }
    if (best) all.push_back(*best);
  }

  const ServeSearchRequest& r_;
  std::int64_t tp_;
  std::unique_ptr<Strategy> strategy_;
  PlanTimes times_;
  std::int64_t simulations_ = 0;
};

std::vector<std::int64_t> ranks_to_try(const Model& model, const Cluster& cluster, std::int64_t gpus) {
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t || t->decoder.empty()) throw UserError{fmt::format("{} is no decoder: only those are served", model.name)};
  std::vector<std::int64_t> all;
  for (std::int64_t tp = 1; tp <= std::min(gpus, cluster.devices_per_node); tp *= 2)
    if (t->decoder.front().attention.heads % tp == 0) all.push_back(tp);
  return all;
}

bool better(const ServeCandidate& a, const ServeCandidate& b) {
  if (a.meets != b.meets) return a.meets;
  if (!a.meets) return a.within > b.within;
  if (a.gpus() != b.gpus()) return a.gpus() < b.gpus();
  return a.within != b.within ? a.within > b.within : a.ttft < b.ttft;
}

}  // namespace

ServeSearch search_serving(const ServeSearchRequest& r) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t have = r.cluster.num_ranks(), gpus = r.gpus > 0 ? std::min(r.gpus, have) : have;
  const std::vector<std::int64_t> ranks = ranks_to_try(r.model, r.cluster, gpus);
  ServeSearch found;
  std::mutex mutex;
  in_parallel(ranks.size(), [&](std::size_t i) {
    RanksSearch search{r, ranks[i]};
    std::vector<ServeCandidate> all = search.run(gpus);
    const std::lock_guard lock{mutex};
    found.simulations += search.simulations();
    found.candidates.insert(found.candidates.end(), all.begin(), all.end());
  });
  std::stable_sort(found.candidates.begin(), found.candidates.end(), [](const auto& a, const auto& b) {
    return std::tuple{a.tp, a.prefill_replicas, a.scheduler, a.max_sequences, a.max_tokens} <
           std::tuple{b.tp, b.prefill_replicas, b.scheduler, b.max_sequences, b.max_tokens};
  });
  std::stable_sort(found.candidates.begin(), found.candidates.end(), better);
  found.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return found;
}

}  // namespace orrery
