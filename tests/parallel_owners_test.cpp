// SPDX-License-Identifier: Apache-2.0
// Ranks that own parameters (`owners`): what they sum, update and send, and where it lies on each of them.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Plan lower(const Model& model, std::int64_t d) {
  TrainOptions o;
  o.batch = std::max<std::int64_t>(32, d);
  o.sequence = 16;
  o.dtype = Precision::F32;
  const auto s = parallel(fmt::format("{{mesh: dp{}, data: {{kind: zero1, owners: true, bucket: 0}}}}", d));
  return s->train_step(model, o, nullptr);
}

/// Elements by what is done with them, on a rank.
struct Totals {
  double summed = 0, copied = 0, squared = 0, updated = 0, sent = 0;
  double part = 0;                // of a copy
  std::set<std::int64_t> owners;  // roots of messages
};

Totals totals_of(const Plan& plan) {
  Totals t;
  for (const Op& op : plan.ops_of(plan.classes.front())) {
    const Work& work = plan.work(op);
    if (const auto* c = std::get_if<Collective>(&work); c && plan.name_of(op).starts_with("sum."))
      t.summed += c->kind == CollectiveKind::AllReduce ? c->bytes.base() / 4 : NAN;
    if (const auto* c = std::get_if<Collective>(&work); c && c->kind == CollectiveKind::Broadcast)
      t.sent += c->bytes.base() / 4, t.owners.insert(c->root);
    if (const auto* r = std::get_if<CopyRows>(&work); r && op.phase == Phase::Optimizer)
      t.part = double(r->cols), t.copied += t.part;
    if (const auto* s = std::get_if<SumSquares>(&work)) t.squared += double(s->elements);
    if (const auto* a = std::get_if<AdamW>(&work)) t.updated += double(a->elements);
  }
  return t;
}

}  // namespace

/// Gradients of all Ψ parameters are all-reduced, and all parameters broadcast, each by one rank. A rank updates as
/// much as the one that owns most: at least the largest parameter, at most the mean and the largest. 8 blocks, what
/// lies outside of them on either end, norms and biases: 11 buckets leave less than a part of padding each.
TEST_CASE("ranks that own parameters sum whole gradients and broadcast what they own", "[parallel]") {
  const std::int64_t d = GENERATE(2, 4, 32, 200);
  const Model model = small_model(GENERATE("gpt2", "llama"));
  double psi = 0, largest = 0;
  for (const Parameter& p : model.parameters) {
    psi += double(p.elements());
    largest = std::max(largest, double(p.elements()));
  }
  const Totals t = totals_of(lower(model, d));
  const double padding = 11 * t.part;
  CHECK(t.summed == psi);
  CHECK(t.copied == t.updated);
  CHECK(t.sent >= psi);
  CHECK(t.sent < psi + padding);
  CHECK(t.updated > largest - t.part);
  CHECK(t.updated < (psi + padding) / double(d) + largest + t.part);
  CHECK(t.squared >= t.sent / double(d));
  CHECK(t.squared < t.sent / double(d) + t.part);
  CHECK(t.owners.size() <= std::min(static_cast<std::size_t>(d), model.parameters.size()));
}

TEST_CASE("what lies elsewhere on each rank lies in tensors that its ops are ordered by", "[parallel]") {
  const Plan plan = lower(small_model("gpt2"), 4);
  const auto problem = [&](auto change) {
    Plan p = plan;
    for (RankView& v : p.rank_views)
      if (plan.name_of(v.view) == "owned.0.grad.0") change(p, v);
    const std::vector<std::string> problems = check_plan(p);
    return problems.empty() ? std::string{} : problems.front();
  };
  CHECK(problem([](Plan&, RankView&) {}).empty());
  CHECK(problem([](Plan&, RankView& v) { v.places.pop_back(); }) ==
        "view 'owned.0.grad.0' has 3 places, there are 4 positions");
  CHECK_THAT(problem([](Plan&, RankView& v) { v.places[1].first = -1; }),
             Catch::StartsWith("view 'owned.0.grad.0' has elements -1 to "));
  CHECK(problem([&](Plan&, RankView& v) { v.places[2].tensor = plan.find_port("tokens"); }) ==
        "view 'owned.0.grad.0' lies in 'input.tokens.128', which has no lasting storage of its type");
  const auto drop_last = [](Plan& p, RankView& v) {
    for (Op& op : p.ops)
      if (op.num_operands > 2 && p.operands_of(op)[0].tensor() == v.view) op.num_operands = 2;
  };
  CHECK(problem(drop_last) == "op 'own.owned.0' touches view 'owned.0.grad.0' and not all tensors that it lies in");
}
