// SPDX-License-Identifier: Apache-2.0
// The strategy patrickstar on several ranks, each of which keeps whole chunks: who brings them up when.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <set>

#include "tests/offload_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Plan owned_chunks(const Model& model, const TrainOptions& o, std::int64_t memory) {
  return strategy_of("patrickstar",
                     fmt::format("{{usable: 1, reserve: 0, hybrid: false, chunk: 1300, device_memory: {} B, parallel: "
                                 "{{mesh: dp3, data: {{kind: zero3, owners: true, bucket: 1000000, prefetch: 0, part: "
                                 "1300}}}}}}",
                                 memory))
      ->train_step(model, o, &host_workspaces());
}

bool is_broadcast(const Plan& plan, std::size_t op) {
  const auto* c = std::get_if<Collective>(&plan.work(OpId{op}));
  return c != nullptr && c->kind == CollectiveKind::Broadcast;
}

/// Per op: broadcasts of its rank before it.
std::vector<int> broadcasts_before(const Plan& plan) {
  std::vector<int> out(plan.ops.size());
  for (const RankClass& c : plan.classes)
    for (std::size_t i = c.first_op + 1; i < c.first_op + c.num_ops; ++i)
      out[i] = out[i - 1] + (is_broadcast(plan, i - 1) ? 1 : 0);
  return out;
}

/// Chunks that come before the passes, that come to be broadcast, and what ranks compute.
struct Arrivals {
  std::vector<Span> before, fetches, computing;
};

Arrivals arrivals(const Plan& plan, const Timeline& timeline) {
  Arrivals out;
  std::vector<Span> comes;
  for (const Span& s : timeline.spans)
    if (plan.name_of(plan[s.op]).starts_with("come."))
      comes.push_back(s);
    else if (plan[s.op].stream == Stream::Compute && !std::holds_alternative<Copy>(plan.work(s.op)))
      out.computing.push_back(s);
  std::int64_t begin = out.computing.front().start_ps;
  for (const Span& s : out.computing) begin = std::min(begin, s.start_ps);
  for (const Span& s : comes)
    if (s.start_ps < begin)
      out.before.push_back(s);
    else if (is_broadcast(plan, s.op.index() + 1))  // else for a gradient
      out.fetches.push_back(s);
  return out;
}

std::size_t ranks_of(const std::vector<Span>& spans) {
  std::set<std::size_t> ranks;
  for (const Span& s : spans) ranks.insert(s.rank.index());
  return ranks.size();
}

bool meet(const Span& a, const Span& b) { return a.start_ps < b.end_ps && b.start_ps < a.end_ps; }

}  // namespace

/// Chunk k of rank k mod n comes right before its broadcast, for which all others wait: no two ranks fetch at once, and
/// nobody computes what comes behind the broadcast. What was on the devices until its update has come before the
/// passes, on all ranks at once.
TEST_CASE("owners of chunks fetch them one after another while the others wait", "[offload]") {
  const Model model = deep_model("gpt2");
  TrainOptions o = offload_options();
  o.batch = 3;
  o.steps = 1;
  o.recompute = Recompute::Whole;
  const std::int64_t tight = peak_of(simulate_steps(owned_chunks(model, o, 1'000'000'000), 1), Tier::Device) - 100'000;
  const Plan plan = owned_chunks(model, o, tight);
  REQUIRE(plan.classes.size() == 3);
  const Timeline simulated = simulate_steps(plan, 1);
  const OffloadRun run = train_capped(model, o, plan);
  CHECK(difference(run.trained, train(model, o, *single())) < 1e-9);
  CHECK(simulated.transfers == run.timeline.transfers);
  CHECK(peak_of(simulated, Tier::Device) == peak_of(run.timeline, Tier::Device));
  CHECK(peak_of(simulated, Tier::Device) <= tight);

  const auto [before, fetches, computing] = arrivals(plan, simulated);
  CHECK(ranks_of(before) == 3);
  std::int64_t together = 0;
  for (const Span& s : before) together += s.rank != before.front().rank && meet(s, before.front()) ? 1 : 0;
  CHECK(together > 0);
  CHECK(ranks_of(fetches) == 3);
  CHECK(fetches.size() > 20);
  const std::vector<int> sent = broadcasts_before(plan);
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) CHECK_FALSE(meet(fetches[i], fetches[k]));
    for (const Span& s : computing)
      if (sent[s.op.index()] > sent[fetches[i].op.index()]) CHECK(s.start_ps >= fetches[i].end_ps);
  }
}
