// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/plan/builder.hpp"
#include "sim/plan/reuse.hpp"
#include "tests/network_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

TensorId vector_of(PlanBuilder& b, std::string_view name, bool persistent = false) {
  return b.tensor(name, Shape{16}, {.persistent = persistent});
}
const Add kAdd{.rows = 1, .cols = 16};

}  // namespace

TEST_CASE("equal works and names are stored once, and an op takes 28 bytes", "[plan]") {
  PlanBuilder b{"p"};
  const TensorId x = vector_of(b, "x", true), y = vector_of(b, "y", true);
  for (int i = 0; i < 10; ++i) b.add("sum", kAdd, {updates(y), reads(x)});
  const Plan plan = b.take(nullptr);
  CHECK(plan.ops.size() == 10);
  CHECK(plan.works.size() == 1);
  CHECK(sizeof(Op) == 28);
  CHECK(sizeof(Operand) == 4);
}

TEST_CASE("dependencies between streams follow from operands, within a stream from order", "[plan]") {
  PlanBuilder b{"p"};
  const TensorId x = vector_of(b, "x", true), y = vector_of(b, "y"), z = vector_of(b, "z");
  const OpId a = b.add("a", kAdd, {reads(x), reads(x), writes(y)});
  const OpId c = b.add("c", kAdd, {reads(y), reads(x), writes(z)}, Stream::Comm);  // reads y: after a
  const OpId d = b.add("d", kAdd, {reads(x), reads(x), updates(y)});               // writes y, which c reads: after c
  const OpId e =
      b.add("e", kAdd, {reads(y), reads(z), updates(y)});  // same stream as d; z: after c, already known through d
  const Plan plan = b.take(nullptr);
  CHECK(plan.deps_of(plan[a]).empty());
  REQUIRE(plan.deps_of(plan[c]).size() == 1);
  CHECK(plan.deps_of(plan[c])[0] == a);
  REQUIRE(plan.deps_of(plan[d]).size() == 1);
  CHECK(plan.deps_of(plan[d])[0] == c);
  CHECK(plan.deps_of(plan[e]).size() == 1);
}

TEST_CASE("storage is taken at the first and given back right after the last use", "[plan]") {
  PlanBuilder b{"p"};
  const TensorId x = vector_of(b, "x", true), y = vector_of(b, "y"), z = vector_of(b, "z");
  b.add("a", kAdd, {reads(x), reads(x), writes(y)});
  b.add("b", kAdd, {reads(y), reads(x), writes(z)});
  b.add("c", kAdd, {reads(z), updates(x), reads(x)});
  const Plan plan = b.take(nullptr);
  CHECK(plan.operands_of(plan.ops[0])[2].allocates());
  CHECK(plan.operands_of(plan.ops[1])[0].frees());
  CHECK(plan.operands_of(plan.ops[1])[2].allocates());
  CHECK(plan.operands_of(plan.ops[2])[0].frees());
  CHECK_FALSE(plan.operands_of(plan.ops[0])[0].allocates());  // persistent
}

TEST_CASE("a removed dependency is found by the checker", "[plan][verify]") {
  PlanBuilder b{"p"};
  const TensorId x = vector_of(b, "x", true), y = vector_of(b, "y");
  b.add("a", kAdd, {reads(x), reads(x), writes(y)});
  b.add("c", kAdd, {reads(y), reads(x), updates(x)}, Stream::Comm);
  Plan plan = b.take(nullptr);
  CHECK(check_plan(plan).empty());
  plan.ops[1].num_deps = 0;
  const auto problems = check_plan(plan);
  REQUIRE_FALSE(problems.empty());
  CHECK(problems[0] == "op 1 'c' touches 'y' while op 0 'a' may still write it");
}

TEST_CASE("an operand of another size than its kind has is found by the checker", "[plan][verify]") {
  PlanBuilder b{"p"};
  const TensorId x = vector_of(b, "x", true), y = vector_of(b, "y", true);  // 16 elements
  b.add("swap", SwapAxes{.a = 3, .b = 5}, {reads(x), writes(y)});
  Plan plan = std::move(b.plan());
  plan.classes[0].num_ops = 1;
  CHECK(check_plan(plan).front() == "op 0 'swap' has 16 elements of 'x' as operand 0, its kind has 15");
  plan.works[0] = LocalIndices{.rows = 16, .classes = 4};
  CHECK(check_plan(plan).front() == "op 0 'swap' has 2 operands, its kind has 3");
}

TEST_CASE("storage given back too early is found by the checker", "[plan][verify]") {
  PlanBuilder b{"p"};
  const TensorId x = vector_of(b, "x", true), y = vector_of(b, "y");
  b.add("a", kAdd, {reads(x), reads(x), writes(y)});
  b.add("b", kAdd, {reads(y), updates(x), reads(x)});
  b.add("c", kAdd, {reads(y), updates(x), reads(x)});
  Plan plan = b.take(nullptr);
  plan.operands[plan.ops[2].first_operand].set_frees(false);
  plan.operands[plan.ops[1].first_operand].set_frees(true);
  CHECK(check_plan(plan).front() == "op 2 'c' uses 'y' after its storage was given back");
  plan.operands[plan.ops[1].first_operand].set_frees(false);
  CHECK(check_plan(plan).front() == "'y' is never given back in class 'all'");
}

TEST_CASE("mismatched collectives and a circular wait are found by the checker", "[plan][verify]") {
  const Mesh mesh{{{"pp", 2}}};
  const auto two = [&](std::int64_t first_tag, std::int64_t second_tag) {
    PlanBuilder b{"p", mesh};
    for (int stage = 0; stage < 2; ++stage) {
      b.begin_class("stage " + std::to_string(stage), {{stage, stage + 1}});
      const TensorId x = vector_of(b, "x", true), y = vector_of(b, "y", true);
      const Peer other{0, stage == 0 ? 1 : -1};
      b.add("send", Send{other, stage == 0 ? first_tag : second_tag, Bytes{64}}, {reads(x)}, Stream::Comm);
      b.add("recv", Recv{other, stage == 0 ? second_tag : first_tag, Bytes{64}}, {writes(y)}, Stream::Comm);
    }
    Plan plan = std::move(b.plan());
    for (std::size_t c = 0; c < 2; ++c) plan.classes[c].num_ops = 2;
    return plan;
  };
  const auto problems = check_plan(two(0, 1));  // both send first, and a send waits for its receive
  REQUIRE_FALSE(problems.empty());
  CHECK(problems[0] == "rank 0 waits for ever at op 0 'send'");

  PlanBuilder b{"p", mesh};
  const GroupId pp = b.group({"pp", {0}, {}});
  for (int stage = 0; stage < 2; ++stage) {
    b.begin_class("stage " + std::to_string(stage), {{stage, stage + 1}});
    const TensorId x = b.tensor("x", Shape{stage == 0 ? 16 : 8}, {.persistent = true});
    b.add("sum", Collective{.group = pp, .bytes = Bytes{stage == 0 ? 64.0 : 32.0}}, {reads(x), updates(x)},
          Stream::Comm);
  }
  Plan plan = std::move(b.plan());
  for (auto& c : plan.classes) c.num_ops = 1;
  CHECK(check_plan(plan).front() ==
        "collective #0 of group 'pp': rank 0 issues collective group=0 bytes=64 as op 0 'sum', rank 1 issues "
        "collective group=0 bytes=32 as op 1 'sum'");
}

TEST_CASE("operands of a collective that do not fit its group, roots and shifts are found", "[plan][verify]") {
  const auto problem = [](Collective work, std::int64_t in, std::int64_t out, DType type = DType::F32) {
    PlanBuilder b{"p", Mesh{{{"tp", 4}, {"dp", 3}}}};
    work.group = b.group({"tp", {0}, {}});
    b.begin_class("all", {{0, 4}, {0, 3}});
    const TensorId x = b.tensor("x", Shape{in}, {.dtype = type, .persistent = true});
    const TensorId y = out > 0 ? b.tensor("y", Shape{out}, {.dtype = type, .persistent = true}) : x;
    if (out > 0)
      b.add("c", work, {reads(x), writes(y)}, Stream::Comm);
    else
      b.add("c", work, {updates(x)}, Stream::Comm);
    Plan plan = std::move(b.plan());
    plan.classes[0].num_ops = 1;
    const auto problems = check_plan(plan);
    return problems.empty() ? std::string{} : problems.front();
  };
  const auto of = [](CollectiveKind kind, std::int32_t root = 0, double bytes = 64) {
    return Collective{.kind = kind, .root = root, .bytes = Bytes{bytes}};
  };
  using enum CollectiveKind;
  CHECK(problem(of(AllReduce), 16, 0).empty());
  CHECK(problem(of(AllReduce), 12, 0) == "op 0 'c' has 12 elements in place, its message 16");
  CHECK(problem(of(AllGather), 4, 16).empty());
  CHECK(problem(of(AllGather), 8, 16) == "op 0 'c' has an input of 8 elements, 4 among 4 ranks");
  CHECK(problem(of(AllGather), 4, 12) == "op 0 'c' has an output of 12 elements, 16 among 4 ranks");
  CHECK(problem(of(ReduceScatter), 16, 4).empty());
  CHECK(problem(of(ReduceScatter), 4, 16) == "op 0 'c' has an input of 4 elements, 16 among 4 ranks");
  CHECK(problem(of(ReduceScatter, 0, 72), 18, 4) == "op 0 'c' cuts 18 elements over 4 ranks");
  CHECK(problem(of(AllToAll), 16, 16).empty());
  CHECK(problem(of(AllToAll), 16, 12) == "op 0 'c' has an output of 12 elements, 16 among 4 ranks");
  CHECK(problem(of(Broadcast, 3), 16, 16).empty());
  CHECK(problem(of(Broadcast, 4), 16, 16) == "op 0 'c' has root 4 of 4 ranks");
  CHECK(problem(of(Reduce, -1), 16, 16) == "op 0 'c' has root -1 of 4 ranks");
  CHECK(problem(of(Shift, -3), 16, 16).empty());
  CHECK(problem(of(Shift, 0), 16, 16) == "op 0 'c' goes 0 places round 4 ranks");
  CHECK(problem(of(Shift, 4), 16, 16) == "op 0 'c' goes 4 places round 4 ranks");
  CHECK(problem(of(AllReduce), 8, 0, DType::F64) == "op 0 'c' has an operand of f64, it is of f32");
}

TEST_CASE("collectives of one group meet in the order of the plan, whatever stream they are on", "[plan][verify]") {
  PlanBuilder b{"p", Mesh{{{"cp", 2}}}};
  const GroupId cp = b.group({"cp", {0}, {}});
  for (int rank = 0; rank < 2; ++rank) {
    b.begin_class("rank " + std::to_string(rank), {{rank, rank + 1}});
    const TensorId x = vector_of(b, "x", true), y = vector_of(b, "y", true);
    // Rank 1 comes to the second one only when it has got through the first; rank 0 comes to both at once.
    b.add("hop", Collective{.group = cp, .bytes = Bytes{64}}, {updates(x)}, Stream::Ring);
    if (rank == 1) b.add("add", Add{.rows = 1, .cols = 16}, {reads(x), updates(y)});
    b.add("sum", Collective{.group = cp, .bytes = Bytes{64}}, {updates(y)}, Stream::Comm);
  }
  CHECK(b.take(nullptr).classes.size() == 2);
}

TEST_CASE("work is counted as the formulas say", "[plan][work]") {
  // 2·m·n·k = 2·8·16·32 = 8192 FLOP; reads 8·32 + 32·16 = 768, writes 128 numbers of 4 B.
  const Amount g = amount(Gemm{.m = 8, .n = 16, .k = 32});
  CHECK(g.flops.base() == 8192);
  CHECK(g.read.base() == 768 * 4);
  CHECK(g.written.base() == 128 * 4);
  // Causal, 4 queries on 4 keys: 1 + 2 + 3 + 4 = 10 pairs; 2 heads, dims 8 and 8: 2·10·2·16 FLOP.
  const AttentionShape s{.heads = 2, .kv_heads = 2, .q = 4, .kv = 4, .qk_dim = 8, .v_dim = 8};
  CHECK(amount(AttentionForward{s}).flops.base() == 2 * 10 * 2 * 16);
  // Decoding with 9 tokens in the cache: 10 keys for 1 query.
  AttentionShape decode = s;
  decode.q = 1;
  decode.kv = Extent{1, Symbol::Context};
  Bindings bindings;
  bindings[Symbol::Context] = 9;
  CHECK(decode.pairs(bindings) == 10);
  // A window of 3 over 4 queries: 1 + 2 + 3 + 3.
  AttentionShape window = s;
  window.window = 3;
  CHECK(window.pairs({}) == 9);
  // Decoding over 10 keys reads 3 of them; the last 4 of 10 tokens as queries see 3 + 3. 2 heads · (8 + 8) · 4 B each.
  window.kv = 10;
  CHECK(window.kv_bytes({}) == Bytes{6 * 2 * 16 * 4});
  window.q = 1;
  CHECK(window.kv_bytes({}) == Bytes{3 * 2 * 16 * 4});
  // Windows side by side: of 10 tokens 0 … 2, 3 … 5, 6 … 8 and 9; the last alone in its own, the one before it sees 3.
  window.chunked = true;
  CHECK(window.pairs({}) == 1);
  CHECK(window.kv_bytes({}) == Bytes{1 * 2 * 16 * 4});
  window.kv = 9;
  CHECK(window.pairs({}) == 3);
  // The last 5 of 10: positions 5 … 9 see 3, 1, 2, 3 and 1 keys, among 3 … 9.
  window.kv = 10, window.q = 5;
  CHECK(window.pairs({}) == 10);
  CHECK(window.kv_bytes({}) == Bytes{7 * 2 * 16 * 4});
  // Positions: as many pairs as the shape says, in each of 3 sequences.
  AttentionShape positions = s;
  positions.batch = 3;
  positions.positions = true;
  positions.visible = 7;
  CHECK(positions.pairs({}) == 21);
}

TEST_CASE("a shift says how far it goes round its group", "[plan][work]") {
  const Collective back{.kind = CollectiveKind::Shift, .root = -1, .bytes = Bytes{64}};
  CHECK(to_text(Work{back}) == "collective kind=shift root=-1 bytes=64");
  CHECK(amount(Work{back}).message == Bytes{64});
  CHECK(places_of_shift(-1, 4) == 3);
  CHECK(places_of_shift(9, 4) == 1);
}

TEST_CASE("a plan prints as stable text", "[plan]") {
  PlanBuilder b{"p"};
  const TensorId x = vector_of(b, "x", true), y = vector_of(b, "y");
  b.add("a", kAdd, {reads(x), reads(x), writes(y)});
  b.add("b", kAdd, {reads(y), reads(x), updates(x)}, Stream::Comm);
  CHECK(print_text(b.take(nullptr)) ==
        "plan p: 2 ops in 1 classes, 1 ranks, 2 tensors\n"
        "operands: = written, ~ updated, + storage taken before, - given back after\n"
        "class all (1 ranks, 2 ops)\n"
        "     0  compute  forward   a                                add rows=1 cols=16  x[16]  x[16]  +=y[16]-\n"
        "     1  comm     forward   b                                add rows=1 cols=16  y[16]-  x[16]  ~x[16]  after "
        "0\n");
}

TEST_CASE("members of a group differ only on its axes, in rank order", "[plan][mesh]") {
  const Mesh mesh{{{"dp", 2}, {"pp", 3}, {"tp", 2}}};  // rank = dp·6 + pp·2 + tp
  const auto ranks = [&](const Group& g, std::size_t r) {
    std::vector<std::size_t> out;
    for (RankId m : members(mesh, g, RankId{r})) out.push_back(m.index());
    return out;
  };
  CHECK(ranks({"tp", {2}, {}}, 3) == std::vector<std::size_t>{2, 3});
  CHECK(ranks({"pp", {1}, {}}, 7) == std::vector<std::size_t>{7, 9, 11});
  CHECK(ranks({"ends", {1}, {{0, 2}}}, 7) == std::vector<std::size_t>{7, 11});
  CHECK(ranks({"ends", {1}, {{0, 2}}}, 9).empty());
  CHECK(peer_of(mesh, RankId{11}, {1, 1}).index() == 7);  // wraps round
}

TEST_CASE("a training step of every shipped test network is a legal plan whose work is three forward passes",
          "[plan][strategy]") {
  // dX and dW cost as much as the forward GEMM each, except that the first layer needs no dX.
  const Model model = load_model(shipped_model("gpt2-tiny"));
  TrainOptions o;
  InferOptions i;
  o.batch = i.batch = 2;
  o.sequence = i.sequence = 32;
  const Plan step = single()->train_step(model, o, nullptr), pass = single()->inference(model, i, nullptr);
  const auto gemm_flops = [](const Plan& p) {
    double sum = 0;
    for (const Op& op : p.ops)
      if (class_of(p.work(op)) == OpClass::Gemm) sum += amount(p.work(op)).flops.base();
    return sum;
  };
  CHECK(gemm_flops(step) == 3 * gemm_flops(pass));  // GPT-2's first GEMM reads an embedding, whose gradient is wanted
  CHECK(check_plan(step).empty());
}

TEST_CASE("a step touches the rows of a table that it picks, and of others everything", "[plan]") {
  PlanBuilder b{"p"};
  const TensorId table = b.tensor("table", Shape{1000, 16}, {.persistent = true});
  const TensorId index = b.tensor("index", Shape{4}, {.dtype = DType::I32, .persistent = true});
  const TensorId rows = b.tensor("rows", Shape{4, 16}, {});
  b.add("pick", Gather{.rows = 4, .cols = 16, .table_rows = 1000, .first = 0, .last = 1000},
        {reads(table), reads(index), writes(rows)});
  // Four random picks meet 1000·(1 − 0.999⁴) different rows of 64 B; the numbers are 16 B, the rows 256 B of storage.
  CHECK(working_set(b.take(nullptr), {}).base() == Approx(1000 * (1 - std::pow(0.999, 4)) * 64 + 16 + 256));
}
