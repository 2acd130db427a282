// SPDX-License-Identifier: Apache-2.0
// Microbatches that repeat another one are copied from it: the plan is the one that lowering each of them gives.
#include <catch2/catch.hpp>

#include "sim/base/random.hpp"
#include "sim/plan/builder.hpp"
#include "sim/strategy/train_step.hpp"
#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Case {
  const char* model;
  const char* strategy;
  std::int64_t batch, microbatches;
  Recompute recompute;
};

constexpr Case kCases[] = {
    {"llama", "{mesh: dp2}", 14, 7, Recompute::None},
    {"gpt2", "{mesh: dp2, data: {kind: zero1}}", 12, 6, Recompute::Full},
    {"gpt2", "{mesh: dp2, data: {kind: zero2}}", 12, 6, Recompute::None},
    {"gpt2", "{mesh: fsdp2 pp2, data: {kind: zero3}}", 12, 6, Recompute::None},
    {"bert", "{mesh: pp2}", 6, 6, Recompute::Selective},
    {"gpt2", "{mesh: pp4, schedule: gpipe}", 6, 6, Recompute::None},
    {"llama", "{mesh: pp4}", 9, 9, Recompute::Full},
    {"gpt2", "{mesh: pp4, stage_layers: [0, 4, 4, 0]}", 8, 8, Recompute::None},
    {"llama", "{mesh: pp2, schedule: interleaved, chunks: 4}", 8, 8, Recompute::Full},
    {"gpt2", "{mesh: pp2, schedule: chimera}", 12, 12, Recompute::None},
    {"llama", "{mesh: pp4, schedule: zb-h1}", 10, 10, Recompute::None},
    {"gpt2", "{mesh: pp4, schedule: zb-v}", 12, 12, Recompute::Full},
    {"llama", "{mesh: pp4, schedule: dualpipe}", 16, 16, Recompute::None},
    {"llama", "{mesh: pp2 dp2 tp2, sequence_parallel: true, data: {kind: zero1}}", 12, 6, Recompute::Full},
    {"llama", "{mesh: pp2 cp2}", 6, 6, Recompute::None},
    {"llama", "{mesh: pp2 cp2, zigzag: false}", 6, 6, Recompute::Full},
    {"llama", "{mesh: pp2 cp2, context: ulysses}", 6, 6, Recompute::None},
    {"gpt2", "{mesh: pp2 cp2, context: rsa}", 6, 6, Recompute::None},
    {"llama", "{mesh: pp2 row2 col2}", 12, 6, Recompute::Full},
    {"gpt2", "{mesh: pp2 x2 y2 z2}", 24, 6, Recompute::None},
    {"mixtral", "{mesh: pp2 ep2}", 12, 6, Recompute::None},
    {"deepseek", "{mesh: tp2}", 6, 6, Recompute::Full},
};

bool same(const Op& a, const Op& b) {
  return a.name == b.name && a.work == b.work && a.first_operand == b.first_operand && a.first_dep == b.first_dep &&
         a.num_operands == b.num_operands && a.num_deps == b.num_deps && a.stream == b.stream && a.phase == b.phase &&
         a.layer == b.layer && a.microbatch == b.microbatch;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.name == b.name && a.layout == b.layout && a.base == b.base && a.dtype == b.dtype && a.role == b.role &&
         a.tier == b.tier && a.persistent == b.persistent;
}

/// A step of eight microbatches.
Plan eight_microbatches(const char* strategy, Recompute recompute = Recompute::None) {
  TrainOptions o;
  o.batch = o.microbatches = 8;
  o.sequence = 8;
  o.recompute = recompute;
  ParallelOptions parallel;
  read_options(parse_yaml(strategy, "strategy"), parallel);
  return lower_train_step(small_model("gpt2"), o, parallel, nullptr);
}

template <class T>
bool all_same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const T& x, const T& y) { return same(x, y); });
}

}  // namespace

TEST_CASE("microbatches that are copied give the plan of microbatches that are lowered", "[strategy]") {
  const Case& c = kCases[GENERATE(range(std::size_t{0}, std::size(kCases)))];
  CAPTURE(c.model, c.strategy);
  const Model model = small_model(c.model);
  TrainOptions o;
  o.batch = c.batch;
  o.microbatches = c.microbatches;
  o.sequence = 8;
  o.recompute = c.recompute;
  ParallelOptions parallel;
  read_options(parse_yaml(c.strategy, "strategy"), parallel);
  const Plan copied = lower_train_step(model, o, parallel, nullptr),
             lowered = lower_train_step(model, o, parallel, nullptr, Repeats::Lowered);
  CHECK(all_same(copied.ops, lowered.ops));
  CHECK(all_same(copied.tensors, lowered.tensors));
  CHECK(copied.deps == lowered.deps);
  CHECK(print_text(copied) == print_text(lowered));
}

TEST_CASE("a block is repeated with tensors of its own and dependencies that follow from them", "[plan]") {
  PlanBuilder b{"repeated"};
  const TensorSpec kept{.role = TensorRole::Parameter, .persistent = true};
  const TensorId weight = b.tensor("w", Shape{8}, kept), sum = b.tensor("sum", Shape{8}, kept);
  const TensorId first = b.tensor("x0", Shape{8}, kept), second = b.tensor("x1", Shape{8}, kept);
  b.set_microbatch(1);
  const OpBlock begun = b.begin_block();
  const TensorId y = b.tensor("y", Shape{8}, {});
  b.add("product", Multiply{.rows = 1, .cols = 8}, {reads(first), reads(weight), writes(y)});
  b.add("copy", Copy{.bytes = Bytes{32.0}}, {reads(y), writes(sum)}, Stream::CopyOut);
  const OpBlock block = b.end_block(begun);
  b.set_microbatch(2);
  const OpBlock again = b.repeat(block, std::vector<Replacement>{{first, second}});
  CHECK(again.first_op == OpId{std::size_t{2}});
  CHECK(again.num_tensors == 1);
  const Plan plan = b.take(nullptr);
  const auto tensor = [&](std::size_t op, std::size_t i) { return plan.operands_of(plan.ops[op])[i].tensor(); };
  CHECK(tensor(2, 0) == second);
  CHECK(tensor(2, 1) == weight);
  CHECK(tensor(2, 2) == again.first_tensor);
  CHECK(tensor(3, 0) == again.first_tensor);
  CHECK(tensor(3, 1) == sum);
  CHECK(plan.ops[2].microbatch == 2);
  CHECK(plan.deps_of(plan.ops[2]).empty());
  CHECK(plan.deps_of(plan.ops[3])[0] == OpId{std::size_t{2}});
}

TEST_CASE("a block that is repeated comes after an op that no operand shows", "[plan]") {
  PlanBuilder b{"after"};
  const TensorSpec kept{.role = TensorRole::Parameter, .persistent = true};
  const TensorId x = b.tensor("x", Shape{8}, kept),
                 host = b.tensor("host", Shape{8}, {.tier = Tier::Host, .persistent = true});
  const OpBlock begun = b.begin_block();
  const TensorId y = b.tensor("y", Shape{8}, {});
  b.add("bring", Copy{.bytes = Bytes{32.0}}, {reads(host), writes(y)}, Stream::CopyIn);
  b.add("product", Multiply{.rows = 1, .cols = 8}, {reads(y), reads(y), writes(x)});
  const OpBlock block = b.end_block(begun);
  const OpId product = b.repeat(block, {}, OpId{std::size_t{1}}).first_op;
  b.repeat(block, {}, OpId{std::size_t{0}});  // an op of its own stream, which is in order already
  const Plan plan = b.take(nullptr);
  const auto waits = [&](std::size_t op) { return plan.deps_of(plan.ops[op]); };
  CHECK(waits(0).empty());
  REQUIRE(waits(product.index()).size() == 1);
  CHECK(waits(product.index())[0] == OpId{std::size_t{1}});
  CHECK(waits(4).empty());
}

TEST_CASE("copies of a pass that needs the next message of its channel receive it themselves", "[strategy]") {
  // Of m microbatches the first and the last stand apart and one is the pattern: m - 3 are copies, and each but those
  // of the network's ends receives states or gradients. Two stages: the second receives states, the first gradients.
  const Plan plan = eight_microbatches("{mesh: pp2}");
  std::size_t received = 0;
  for (const Repetition& r : plan.repetitions)
    for (std::size_t i = r.first.index(); i < r.first.index() + r.num_ops; ++i)
      received += std::holds_alternative<Recv>(plan.work(plan.ops[i]));
  CHECK(received == 2 * (8 - 3));
}

namespace {

/// A plan in whose repeated blocks one op has another operand of the same shape, or does not wait for an op that it
/// comes after.
Plan damaged(const Plan& plan, Random& random) {
  const auto any = [&](std::size_t n) { return static_cast<std::size_t>(random.below(n)); };
  while (true) {
    const Repetition& r = plan.repetitions[any(plan.repetitions.size())];
    Plan out = plan;
    Op& changed = out.ops[r.first.index() + any(r.num_ops)];
    if (random.below(4) == 0 && changed.num_deps > 0) {
      --changed.num_deps;
      return out;
    }
    if (changed.num_operands == 0) continue;
    Operand& o = out.operands[changed.first_operand + any(changed.num_operands)];
    const TensorId instead{any(plan.tensors.size())};
    const Tensor &from = plan.tensors[o.tensor().index()], &to = plan.tensors[instead.index()];
    if (instead == o.tensor() || from.layout != to.layout || from.dtype != to.dtype) continue;
    Operand with{instead, o.access()};
    with.set_allocates(o.allocates());
    with.set_frees(o.frees());
    o = with;
    return out;
  }
}

}  // namespace

TEST_CASE("damage to a block that repeats another one is found as in any other ops", "[plan]") {
  const char* const strategy =
      GENERATE("{mesh: pp2}", "{mesh: pp2, schedule: interleaved, chunks: 2}", "{mesh: pp2, schedule: zb-h1}");
  CAPTURE(strategy);
  const Plan plan = eight_microbatches(strategy, GENERATE(Recompute::None, Recompute::Full));
  REQUIRE(check_plan(plan).empty());
  REQUIRE(!plan.repetitions.empty());
  Random random{17};
  int found = 0;
  for (int i = 0; i < 60; ++i) {
    Plan copied = damaged(plan, random), plain = copied;
    plain.repetitions.clear();
    const auto problems = check_plan(plain);
    found += !problems.empty();
    INFO((problems.empty() ? "nothing" : problems.front()));
    CHECK((problems.empty() || !check_plan(copied).empty()));
  }
  CHECK(found > 40);
}

TEST_CASE("an op that repeats one of another part of the step is found", "[plan]") {
  Plan plan = eight_microbatches("{mesh: pp2}");
  plan.ops[plan.repetitions.front().first.index()].phase = Phase::Optimizer;
  const auto problems = check_plan(plan);
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems.front(), Catch::Contains("is said to repeat"));
}

TEST_CASE("a repetition behind all ops is found", "[plan]") {
  PlanBuilder b{"behind"};
  const TensorId x = b.tensor("x", Shape{8}, {.role = TensorRole::Parameter, .persistent = true});
  b.add("product", Multiply{.rows = 1, .cols = 8}, {reads(x), reads(x), updates(x)});
  Plan plan = b.take(nullptr);
  plan.repetitions.push_back({OpId{std::size_t{1}}, OpId{std::size_t{0}}, 1});
  CHECK(check_plan(plan) == std::vector<std::string>{"the classes hold 0 repetitions of 1"});
}

TEST_CASE("storage that repeated blocks share with other ops is followed through all of them", "[plan]") {
  PlanBuilder b{"shared"};
  const TensorSpec kept{.role = TensorRole::Parameter, .persistent = true};
  const TensorId weight = b.tensor("w", Shape{8}, kept), sum = b.tensor("sum", Shape{8}, kept);
  const TensorId host = b.tensor("host", Shape{8}, {.tier = Tier::Host, .persistent = true});
  const OpBlock begun = b.begin_block();
  const TensorId y = b.tensor("y", Shape{8}, {});
  b.add("product", Multiply{.rows = 1, .cols = 8}, {reads(weight), reads(weight), writes(y)});
  b.add("keep", Multiply{.rows = 1, .cols = 8}, {reads(y), reads(y), writes(sum)});
  const OpBlock block = b.end_block(begun);
  const auto send = [&](const char* name) {
    return b.add(name, Copy{.bytes = Bytes{32.0}}, {reads(sum), writes(host)}, Stream::CopyOut);
  };
  for (int i = 0; i < 3; ++i) b.repeat(block, {});
  const OpId middle = send("middle");
  OpId behind = b.repeat(block, {}).first_op;  // "keep" is the op after it, and overwrites what is sent
  ++behind.value;
  for (int i = 0; i < 3; ++i) b.repeat(block, {});
  const OpId last = send("last");
  const Plan plan = b.take(nullptr);
  REQUIRE(plan.repetitions.size() == 7);
  REQUIRE(check_plan(plan).empty());
  const auto problem_without_order = [&](OpId op) {
    Plan damaged = plan;
    damaged.ops[op.index()].num_deps = 0;
    const auto problems = check_plan(damaged);
    return problems.empty() ? std::string{} : problems.front();
  };
  // The op named is the latest that touches the sum before: of the third and of the seventh copy.
  CHECK(problem_without_order(middle) == "op 8 'middle' touches 'sum' while op 7 'keep' may still write it");
  CHECK(problem_without_order(behind) == "op 10 'keep' writes 'sum' while op 8 'middle' may still read it");
  CHECK(problem_without_order(last) == "op 17 'last' touches 'sum' while op 16 'keep' may still write it");
}
