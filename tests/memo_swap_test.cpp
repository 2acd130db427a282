// SPDX-License-Identifier: Apache-2.0
// The strategy memo: the same weights whatever part of the tokens is swapped; what moves and what is computed again is
// what its rule says.
#include <catch2/catch.hpp>

#include "sim/strategy/offload/memo_visits.hpp"
#include "tests/offload_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Plan memo_plan(const Model& model, const TrainOptions& o, const std::string& options) {
  return strategy_of("memo", options)->train_step(model, o, &host_workspaces());
}

TrainOptions one_sequence() {
  TrainOptions o = offload_options();
  o.batch = 1;
  o.sequence = 32;
  return o;
}

/// FLOP of products that are made again.
double products_again(const Plan& plan) {
  double sum = 0;
  for (const Op& op : plan.ops)
    if (op.phase == Phase::Recompute && std::holds_alternative<Gemm>(plan.work(op)))
      sum += amount(plan.work(op)).flops.base();
  return sum;
}

}  // namespace

TEST_CASE("swapped and recomputed tokens give the same weights", "[offload][memo]") {
  const OffloadCase c = GENERATE(
      OffloadCase{"gpt2", "{alpha: 0}"}, OffloadCase{"gpt2", "{alpha: 0.4}", 2}, OffloadCase{"gpt2", "{alpha: 1}"},
      OffloadCase{"llama", "{alpha: 0.5}"}, OffloadCase{"llama", "{alpha: 0.8, memory: pageable}", 2},
      OffloadCase{"tied", "{alpha: 0.25}", 4}, OffloadCase{"mixtral", "{alpha: 0.5}"},
      OffloadCase{"qwen", "{alpha: 0.5}"}, OffloadCase{"gpt2", "{alpha: 0.5, parallel: {mesh: dp2}}"},
      OffloadCase{"gpt2", "{alpha: 0.5, parallel: {mesh: tp2}}", 2},
      OffloadCase{"llama", "{alpha: 0.5, parallel: {mesh: tp2, sequence_parallel: true}}"},
      OffloadCase{"llama", "{alpha: 0, parallel: {mesh: tp4, sequence_parallel: true}}"},
      OffloadCase{"gpt2", "{alpha: 0.3, parallel: {mesh: tp2, sequence_parallel: true}}", 2},
      OffloadCase{"gpt2", "{alpha: 0.5, parallel: {mesh: dp2 tp2, sequence_parallel: true}}"},
      OffloadCase{"qwen", "{alpha: 0.5, parallel: {mesh: tp2, sequence_parallel: true}}"},
      OffloadCase{"llama", "{alpha: 0.5, parallel: {mesh: cp2}}"},
      OffloadCase{"gpt2", "{alpha: 0.5, parallel: {mesh: cp2, context: ulysses}}"},
      OffloadCase{"gpt2", "{alpha: 0.5, parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}}"});
  CAPTURE(c.model, c.options, c.microbatches);
  CHECK(off_one_device(
            c, [](const Model& model, TrainOptions o, const char* options) { return memo_plan(model, o, options); },
            Compared::Gradients) < 1e-9);
}

TEST_CASE("one sequence is parted at any token, with dropout", "[offload][memo]") {
  const char* family = GENERATE("gpt2", "llama");
  const char* options = GENERATE("{alpha: 0.1}", "{alpha: 0.45}", "{alpha: 0.97}");
  CAPTURE(family, options);
  const Model model = small_model(family);
  TrainOptions o = one_sequence();
  o.dropout = 0.1;
  CHECK(worst_difference(train(model, o, memo_plan(model, o, options)), train(model, o, *single())) < 1e-9);
}

TEST_CASE("rows that ranks split are parted at any token of each, with dropout", "[offload][memo]") {
  const char* family = GENERATE("gpt2", "llama");
  const char* alpha = GENERATE("0", "0.1", "0.45", "0.97", "1");
  CAPTURE(family, alpha);
  const Model model = small_model(family);
  TrainOptions o = one_sequence();
  o.dropout = 0.1;
  const std::string options = std::string{"{alpha: "} + alpha + ", parallel: {mesh: tp2, sequence_parallel: true}}";
  CHECK(worst_difference(train(model, o, memo_plan(model, o, options)), train(model, o, *single())) < 1e-9);
}

/// Of each block but the last two: what cannot be made row by row once, and α of the rest.
TEST_CASE("bytes and products of memo follow from alpha, and engine and runtime count them", "[offload][memo]") {
  const char* family = GENERATE("gpt2", "llama", "mixtral");
  const double alpha = GENERATE(0.0, 0.25, 0.75, 1.0);
  CAPTURE(family, alpha);
  const Model model = small_model(family);
  TrainOptions o = one_sequence();
  o.steps = 1;
  const Plan plain = single()->train_step(model, o, nullptr);
  double moved = 0, products = 0;
  const std::vector<BlockVisit> visits = block_visits(plain, ClassId{0});
  for (std::size_t v = 0; v + 2 < visits.size(); ++v) {
    moved += visits[v].bytes(plain, false).base() + alpha * visits[v].bytes(plain, true).base();
    for (const AgainOp& a : visits[v].again)
      if (std::holds_alternative<Gemm>(plain.work(a.op)))
        products += (1 - alpha) * amount(plain.work(a.op)).flops.base();
  }
  const Plan plan = memo_plan(model, o, "{alpha: " + std::to_string(alpha) + "}");
  const OffloadRun run = train_capped(model, o, plan);
  CHECK(double(bytes_between(run.timeline, Tier::Device, Tier::Pinned)) == moved);
  CHECK(double(bytes_between(run.timeline, Tier::Pinned, Tier::Device)) == moved);
  CHECK(run.timeline.transfers == simulate_steps(plan, 1).transfers);
  CHECK(run.timeline.transfers == planned_transfers(plan));
  CHECK(products_again(plan) == Approx(products));
  CHECK((products > 0) == (alpha < 1));
}

/// In units of s·h numbers: the input and the output of attention always (with the log-sum of each head), and 14 others
/// of a GPT whose norms, projections, residual and feed-forward layer can be made row by row.
TEST_CASE("a block of a GPT has sixteen units", "[offload][memo]") {
  const Model model = small_model("gpt2");
  const TrainOptions o = one_sequence();
  const Plan plain = single()->train_step(model, o, nullptr);
  const BlockVisit v = block_visits(plain, ClassId{0}).at(3);
  const double unit = 8.0 * 32 * 16, log_sums = 8.0 * 32 * 4, statistics = 2 * 2 * 8.0 * 32;
  CHECK(v.bytes(plain, false).base() == 2 * unit + log_sums);
  CHECK(v.bytes(plain, true).base() == 14 * unit + statistics);
}

/// Rows that ranks gathered are no part of a block's swaps: all blocks gather both again for their backward passes, and
/// the six that move gather the last half of each rank's rows too, from which they make the rest, and scatter the sums
/// behind attention.
TEST_CASE("the last rows of each rank are gathered and made again", "[offload][memo]") {
  const Model model = small_model("gpt2");
  const TrainOptions o = one_sequence();
  const std::string parallel = "{mesh: tp2, sequence_parallel: true}";
  const Plan plan = memo_plan(model, o, "{alpha: 0.5, parallel: " + parallel + "}");
  std::int64_t gathers = 0, halves = 0, scatters = 0;
  const double bytes = 8.0 * 32 * 16;
  for (const Op& op : plan.ops)
    if (const auto* c = std::get_if<Collective>(&plan.work(op)); c != nullptr && op.phase == Phase::Recompute) {
      gathers += c->kind == CollectiveKind::AllGather && c->bytes.base() == bytes;
      halves += c->kind == CollectiveKind::AllGather && c->bytes.base() == bytes / 2;
      scatters += c->kind == CollectiveKind::ReduceScatter && c->bytes.base() == bytes / 2;
    }
  CHECK(gathers == 2 * 8 + 1);  // and what the head reads
  CHECK(halves == 2 * 6);
  CHECK(scatters == 6);

  const Plan plain = strategy_of("parallel", parallel)->train_step(model, o, nullptr);
  const BlockVisit v = block_visits(plain, ClassId{0}).at(3);
  const double unit = 8.0 * 32 * 16 / 2;  // of a rank: a sixteenth of what is kept of a block
  const double log_sums = 8.0 * 32 * 4 / 2, statistics = 2 * 2 * 8.0 * 32 / 2;
  CHECK(v.bytes(plain, false).base() == 2 * unit + log_sums);
  CHECK(v.bytes(plain, true).base() == 14 * unit + statistics);
}

TEST_CASE("activations take two blocks' room, however many blocks there are", "[offload][memo]") {
  const Model model = deep_model("gpt2");
  TrainOptions o = one_sequence();
  o.steps = 1;
  const OffloadRun plain = train_capped(model, o, single()->train_step(model, o, &host_workspaces()));
  const OffloadRun run = train_capped(model, o, memo_plan(model, o, "{alpha: 0.5}"));
  const BlockVisit v = block_visits(single()->train_step(model, o, nullptr), ClassId{0}).at(3);
  const Plan lowered = single()->train_step(model, o, nullptr);
  const double block = (v.bytes(lowered, false) + v.bytes(lowered, true)).base();
  // 24 blocks are kept plain; two buffers instead.
  CHECK(double(peak_of(run.timeline, Tier::Device)) < double(peak_of(plain.timeline, Tier::Device)) - 21 * block);
  CHECK(double(peak_of(run.timeline, Tier::Device)) > double(peak_of(plain.timeline, Tier::Device)) - 23 * block);
}

TEST_CASE("alpha follows from rates and room", "[offload][memo]") {
  const Model model = small_model("gpt2");
  const TrainOptions o = one_sequence();
  const Plan plain = single()->train_step(model, o, nullptr);
  const BlockVisit v = block_visits(plain, ClassId{0}).at(3);
  const double always = v.bytes(plain, false).base(), others = v.bytes(plain, true).base();
  const auto moved = [&](const std::string& options) {
    double sum = 0;
    for (const Transfers& t : planned_transfers(memo_plan(model, o, options)))
      if (t.to == Tier::Pinned) sum += double(t.bytes);
    return sum / 6;  // of eight blocks two stay
  };
  // A pass of so many FLOP at 1 GFLOP/s; a link on which half of the others pass meanwhile.
  const double link = (always + 0.5 * others) / (v.forward.base() / 1e9);
  const std::string rates = "{rate: 1 GFLOP/s, link: " + std::to_string(link * 1.0001) + " B/s";
  CHECK(moved(rates + "}") == Approx(always + 0.5 * others).epsilon(0.001));
  const double room = 6 * (always + 0.25 * others);
  CHECK(moved(rates + ", host_memory: " + std::to_string(room * 1.0001) + " B}") ==
        Approx(always + 0.25 * others).epsilon(0.001));
}

TEST_CASE("what memo cannot do is refused") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  o.microbatches = 2;
  const auto refusal = [&](const char* options) { return user_error([&] { memo_plan(model, o, options); }); };
  CHECK_THAT(refusal("{}"), Catch::Contains("set `alpha`"));
  CHECK_THAT(refusal("{alpha: 1.5}"), Catch::Contains("1"));
  CHECK_THAT(refusal("{alpha: 0.5, parallel: {mesh: pp2}}"), Catch::Contains("leave out the axis pp"));
  CHECK_THAT(refusal("{alpha: 0.5, parallel: {mesh: tp2, sequence_parallel: true, tp_comm_overlap: true}}"),
             Catch::Contains("leave out `tp_comm_overlap`"));
  o.recompute = Recompute::Full;
  CHECK_THAT(refusal("{alpha: 0.5}"), Catch::Contains("leave out `recompute`"));
}
