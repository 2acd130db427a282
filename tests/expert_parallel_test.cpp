// SPDX-License-Identifier: Apache-2.0
// Experts on ranks of their own compute what one device computes; what they exchange, and what does not fit.
#include <catch2/catch.hpp>

#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kTolerance = 1e-9;

TrainOptions options() { return double_steps(16, 4, 12, 3); }

double difference(const std::string& family, const std::string& strategy, const TrainOptions& o) {
  const Model model = small_model(family);
  return worst_difference(train(model, o, *parallel(strategy)), train(model, o, *single()));
}

/// Bytes of the messages of rows to and from experts in one layer.
Bytes exchanged(const Plan& plan, int layer, Phase phase) {
  Bytes sum;
  for (const Op& op : plan.ops) {
    const auto* c = std::get_if<Collective>(&plan.work(op));
    if (c && c->kind == CollectiveKind::AllToAll && c->dtype == DType::F64 && op.layer == layer && op.phase == phase)
      sum += c->bytes;
  }
  return sum;
}

}  // namespace

TEST_CASE("experts on ranks of their own compute what one device computes", "[expert]") {
  const auto* model = GENERATE("mixtral", "deepseek", "qwen", "llama4");
  const auto* s = GENERATE("{mesh: ep2}", "{mesh: ep4}", "{mesh: dp2 ep2}", "{mesh: ep2 dp2, expert_buffer: 1.9}",
                           "{mesh: ep2 tp2}", "{mesh: ep2 tp2, sequence_parallel: true}", "{mesh: pp2 ep2}",
                           "{mesh: ep2, data: {kind: zero1}}", "{mesh: ep2, data: {kind: zero3}}",
                           "{mesh: ep2 fsdp2, data: {kind: zero3}}", "{mesh: pp2 dp2 ep2, schedule: zb-h1}");
  INFO(model << " " << s);
  CHECK(difference(model, s, options()) < kTolerance);
}

TEST_CASE("passes that take turns between exchanges compute what one device computes", "[expert]") {
  const auto* model = GENERATE("mixtral", "deepseek");
  const auto* s = GENERATE("{mesh: ep2, ", "{mesh: dp2 ep2, data: {kind: zero1}, ", "{mesh: pp2 ep2, ",
                           "{mesh: ep2 tp2, sequence_parallel: true, ");
  INFO(model << " " << s);
  CHECK(difference(model, std::string{s} + "expert_overlap: true}", options()) < kTolerance);
}

TEST_CASE("a host that waits for the rows of experts computes what one does that runs ahead", "[expert]") {
  const auto* s = GENERATE("{mesh: ep2}", "{mesh: pp2 ep2}", "{mesh: ep2, expert_overlap: true}");
  TrainOptions o = options();
  const Model model = small_model("mixtral");
  const Trained one = train(model, o, *single());
  o.waits_for_experts = true;
  o.recompute = GENERATE(Recompute::None, Recompute::Full);
  INFO(s << " " << int(o.recompute));
  CHECK(worst_difference(train(model, o, *parallel(s)), one) < kTolerance);
}

// Where experts have a capacity their rows are known before.
TEST_CASE("the host waits once in each layer of experts that take all rows", "[expert]") {
  TrainOptions o = options();
  o.waits_for_experts = true;
  o.capacity_factor = GENERATE(0.0, 0.8);
  o.capacity_groups = o.capacity_factor > 0 ? 4 : 0;
  const auto* s = GENERATE("{mesh: ep2}", "{mesh: ep1}");
  const Plan plan = parallel(s)->train_step(small_model("mixtral"), o, nullptr);
  std::size_t waits = 0;
  for (const Op& op : plan.ops) {
    const auto* work = std::get_if<HostWork>(&plan.work(op));
    waits += work != nullptr && work->waits && op.phase == Phase::Forward;
  }
  const std::size_t layers = 4, microbatches = 4;
  CHECK(waits == (o.capacity_factor > 0 ? 0 : layers * microbatches));
}

// A forward pass of one layer is attention | dispatch | experts | combine | loss, a backward pass the same from behind:
// between two exchanges of a pass there is a piece of the other one.
TEST_CASE("what stands behind an exchange belongs to the other pass", "[expert]") {
  const Plan plan =
      parallel("{mesh: ep2, expert_overlap: true}")->train_step(small_model("mixtral"), options(), nullptr);
  std::size_t hidden = 0, all = 0;
  const auto is_exchange = [&](const Op& op) {
    return op.stream == Stream::Ring && std::holds_alternative<Collective>(plan.work(op));
  };
  for (std::size_t i = 0; i + 1 < plan.ops.size(); ++i) {
    const Op &op = plan.ops[i], &next = plan.ops[i + 1];
    all += is_exchange(op);
    hidden += is_exchange(op) && (op.phase == Phase::Forward) != (next.phase == Phase::Forward);
  }
  const std::size_t each = 2 * 2 * 4;  // dispatch and combine, forward and back, in 4 layers
  CHECK(all == 4 * each);              // microbatches
  CHECK(hidden >= 3 * each - 3);       // 3 pairs of passes, whose last exchange may be followed by its own pass
  CHECK(hidden <= 3 * each);
}

TEST_CASE("experts on ranks of their own are computed again", "[expert]") {
  const auto* model = GENERATE("mixtral", "deepseek");
  TrainOptions o = options();
  o.recompute = Recompute::Full;
  o.capacity_factor = GENERATE(0.0, 1.0);
  o.capacity_groups = o.capacity_factor > 0 ? 4 : 0;
  INFO(model << " " << o.capacity_factor);
  CHECK(difference(model, "{mesh: dp2 ep2}", o) < kTolerance);
}

// A group of tokens is what a rank has of a microbatch: 4 samples over dp and ep.
TEST_CASE("experts drop the tokens that one device drops", "[expert]") {
  const auto* model = GENERATE("mixtral", "deepseek");
  const auto* s = GENERATE("{mesh: dp2}", "{mesh: ep2}", "{mesh: ep4}", "{mesh: dp2 ep2}", "{mesh: ep2 tp2}",
                           "{mesh: pp2 ep2, data: {kind: zero1}}", "{mesh: ep2 tp2, sequence_parallel: true}");
  TrainOptions o = options();
  o.capacity_factor = 0.8;
  o.capacity_groups = 4;
  INFO(model << " " << s);
  CHECK(difference(model, s, o) < kTolerance);
}

TEST_CASE("a capacity drops tokens, and does nothing where all find room", "[expert]") {
  const Model model = small_model("mixtral");
  TrainOptions o = options();
  const Trained all = train(model, o, *single());
  o.capacity_factor = 2;  // 4 experts, 2 of them for each token: all tokens may choose the same
  CHECK(worst_difference(train(model, o, *single()), all) < kTolerance);
  o.capacity_factor = 0.8;
  CHECK(worst_difference(train(model, o, *single()), all) > 1e-3);
}

// A layer sends rows · top_k rows of h elements to the experts and as many back; the gradients go the same ways.
TEST_CASE("a layer exchanges twice the rows of its tokens' choices in each direction", "[expert]") {
  const Model model = small_model("mixtral");
  TrainOptions o = options();
  o.microbatches = 1;
  const double rows = 16 / 2 * 12, top_k = 2, h = 16;
  for (const double factor : {0.0, 0.5}) {
    o.capacity_factor = factor;
    const Plan plan = parallel("{mesh: ep2}")->train_step(model, o, &host_workspaces());
    const Bytes expected{2 * rows * top_k * h * 8 * (factor > 0 ? factor : 1)};
    CHECK(exchanged(plan, 1, Phase::Forward) == expected);
    CHECK(exchanged(plan, 1, Phase::Backward) == expected);
  }
}

TEST_CASE("more rows than the buffer of the experts holds are an error", "[expert]") {
  const auto message = [] {
    try {
      train(small_model("mixtral"), options(), *parallel("{mesh: ep2, expert_buffer: 1}"));
    } catch (const DeviceError& e) {
      return std::string{e.what()};
    }
    return std::string{"no error"};
  };
  CHECK(
      message() ==
      "op 20 'layers.0.moe.merge' on rank 0: 55 rows come to the experts of this rank, there is room for 48; a larger "
      "`expert_buffer` has room for more, 0 for all");
}

TEST_CASE("experts and capacities that do not divide are refused", "[expert]") {
  const auto error = [](const std::string& strategy, double factor, std::int64_t groups) {
    TrainOptions o = options();
    o.capacity_factor = factor;
    o.capacity_groups = groups;
    return user_error([&] { parallel(strategy)->train_step(small_model("mixtral"), o, nullptr); });
  };
  CHECK(error("{mesh: ep3}", 0, 0) == "ep 3 does not divide 4 experts\n  hint: ep can be 1, 2, 4");
  CHECK(error("{mesh: ep2}", 0, 2) == "capacity_groups without a capacity\n  hint: set capacity_factor");
  CHECK(error("{mesh: ep2}", -1, 0) == "capacity_factor is -1, it must be at least 0");
  CHECK(error("{mesh: ep2}", 1, -1) == "capacity_groups is -1, it must be at least 0");
  CHECK(error("{mesh: ep2}", 1, 3) ==
        "capacity_groups 3 is not a multiple of 2, the replicas of the mesh\n  hint: capacity_groups can be 2 or 4");
  CHECK(error("{mesh: ep2}", 1, 6) ==
        "6 capacity_groups do not divide the 4 samples of a microbatch\n  hint: capacity_groups can be 2 or 4");
  CHECK(error("{mesh: dp2, expert_overlap: true}", 0, 0) ==
        "expert_overlap hides exchanges of experts, and no axis has any\n  hint: leave it out, or use an axis ep");
  CHECK(error("{mesh: dp2, expert_buffer: 1}", 0, 0) ==
        "expert_buffer is for experts on an axis ep that take all tokens\n  hint: leave it out");
  CHECK(error("{mesh: ep2, expert_buffer: 1}", 1, 0) ==
        "expert_buffer is for experts on an axis ep that take all tokens\n  hint: leave it out: capacity_factor bounds "
        "what "
        "arrives");
}
