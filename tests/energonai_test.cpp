// SPDX-License-Identifier: Apache-2.0
// EnergonAI (arXiv 2209.02341): whatever it leaves out, moves or lets run ahead, logits are those of the plain pass.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "sim/engine/engine.hpp"
#include "sim/machine/cost.hpp"
#include "tests/engine_plans.hpp"
#include "tests/network_testing.hpp"
#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::int64_t kBatch = 4, kSequence = 7, kVocabulary = 61;
const std::vector<std::int64_t> kLengths{3, kSequence, 1, 5};

std::unique_ptr<Strategy> energonai(const std::string& options) {
  return find_strategy("energonai").make(parse_yaml(options, "strategy"));
}

InferOptions options() {
  InferOptions o;
  o.batch = kBatch;
  o.sequence = kSequence;
  o.dtype = Precision::F64;
  return o;
}

std::vector<double> logits(const Model& model, const InferOptions& o, const Strategy& strategy) {
  const Plan plan = strategy.inference(model, o, &host_workspaces());
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 5, 0.05);
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < kBatch * kSequence; ++i) tokens.push_back(i * 7 % kVocabulary);
  put(*executor, plan, {{"tokens", tokens, {}}});
  executor->execute(plan, {});
  return read_port(*executor, plan, "logits");
}

/// Of padded logits those of valid tokens, and of these the last of each sample.
std::vector<double> valid(const std::vector<double>& padded, bool last) {
  std::vector<double> out;
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t i = last ? kLengths[std::size_t(b)] - 1 : 0; i < kLengths[std::size_t(b)]; ++i) {
      const auto row = padded.begin() + static_cast<std::ptrdiff_t>((b * kSequence + i) * kVocabulary);
      out.insert(out.end(), row, row + kVocabulary);
    }
  return out;
}

/// Products take a second for each GFLOP, copies one for each MB, all else nothing.
class Toy final : public CostModel {
 public:
  explicit Toy(double copy) : copy_{copy} {}
  OpCost cost(const Work& work, const Bindings&, RankId) const override {
    OpCost c;
    if (const auto* g = std::get_if<Gemm>(&work)) c.duration = Seconds{g->amount({}).flops.base() * 1e-9};
    if (const auto* h = std::get_if<HostWork>(&work)) c.duration = h->pause;
    if (const auto* m = std::get_if<Copy>(&work)) c.duration = Seconds{m->bytes.base() * 1e-6 * copy_};
    return c;
  }
  OpCost collective(const Collective&, std::span<const RankId>) const override { return {}; }
  OpCost transfer(Bytes, RankId, RankId) const override { return {}; }
  LaunchCost launch(const Work&, RankId) const override { return {}; }
  std::string extrapolation(const Work&, const Bindings&, RankId) const override { return {}; }

 private:
  double copy_;
};

class NothingShared final : public ResourceMap {
 public:
  std::uint32_t instance(Resource, RankId rank) const override { return static_cast<std::uint32_t>(rank.index()); }
  std::uint32_t count(Resource) const override { return 64; }
  double capacity(Resource, std::uint32_t) const override { return 1; }
};

double seconds(const Plan& plan, double copy) {
  const Toy cost{copy};
  const NothingShared resources;
  std::int64_t end_ps = 0;  // of what is computed: copies may still return
  for (const Span& s : simulate(plan, {}, cost, resources).spans)
    if (plan[s.op].stream == Stream::Compute) end_ps = std::max(end_ps, s.end_ps);
  return double(end_ps) * 1e-12;
}

}  // namespace

TEST_CASE("packed rows, stages and layers on a neighbour give the logits of the plain pass", "[energonai]") {
  const auto [strategy, microbatches] = GENERATE(table<std::string, int>({
      {"{mesh: tp1, call: 0 s}", 1},
      {"{mesh: tp2}", 1},
      {"{mesh: tp2, restored: true}", 1},
      {"{mesh: pp2, restored: true}", 2},
      {"{mesh: pp4}", 4},
      {"{mesh: pp2 tp2, in_flight: 1}", 4},
      {"{mesh: pp2, blocking: true}", 2},
      {"{mesh: pp2, packed: false, handover: queues, poll: 1 ms, answer_poll: 1 ms, client_poll: 1 ms}", 2},
      {"{mesh: tp1, peer_every: 2}", 1},
      {"{mesh: pp2, peer_every: 4}", 2},
      {"{mesh: tp1, peer_every: 3, write_back: false}", 2},
  }));
  const auto family = GENERATE(as<std::string>{}, "gpt2", "llama");
  const bool last = GENERATE(false, true);
  INFO(family << " " << strategy << (last ? ", last tokens" : ""));
  const Model model = small_model(family);
  InferOptions o = options();
  const auto plain = valid(logits(model, o, *single()), last);
  o.lengths = kLengths;
  o.last = last;
  o.microbatches = microbatches;
  auto ours = logits(model, o, *energonai(strategy));
  const auto has = [&text = strategy](const char* option) { return text.find(option) != std::string::npos; };
  const bool padded = has("packed: false") || has("restored");
  if (padded && !last) ours = valid(ours, false);
  CHECK(largest_difference(ours, plain) <= 1e-9);
}

TEST_CASE("packed plans compute valid rows only, but for attention", "[energonai]") {
  const Model model = small_model("gpt2");
  InferOptions o = options();
  o.lengths = kLengths;
  const Plan packed = energonai("{mesh: tp1}")->inference(model, o, nullptr);
  const std::int64_t all = kBatch * kSequence, rows = 3 + 7 + 1 + 5;
  for (const Op& op : packed.ops) {
    if (const auto* g = std::get_if<Gemm>(&packed.work(op))) CHECK(g->m == rows);
    if (const auto* a = std::get_if<AttentionForward>(&packed.work(op))) CHECK(a->shape.batch * a->shape.q == all);
  }
  const Plan stages = energonai("{mesh: pp2}")->inference(model, o, nullptr);
  for (const Op& op : stages.ops)
    if (const auto* s = std::get_if<Send>(&stages.work(op)); s && s->tag == 0)
      CHECK(s->bytes == size_of(DType::F64, rows * 16));
}

TEST_CASE("padding that is put back behind the blocks is in the logits alone", "[energonai]") {
  const Model model = small_model("gpt2");
  InferOptions o = options();
  o.lengths = kLengths;
  const Plan plan = energonai("{mesh: tp1, restored: true}")->inference(model, o, nullptr);
  std::vector<std::int64_t> rows;
  for (const Op& op : plan.ops)
    if (const auto* g = std::get_if<Gemm>(&plan.work(op))) rows.push_back(g->m);
  REQUIRE(rows.size() > 1);
  CHECK(rows.back() == kBatch * kSequence);
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) CHECK(rows[i] == 3 + 7 + 1 + 5);
}

TEST_CASE("copies from a neighbour stall exactly when they outlast what hides them", "[energonai]") {
  // Blocks take t, copies c. A copy starts two blocks (k = 2: one) before its block. With write-back the copy before,
  // which starts when its block ends, goes first.
  const Model model = small_model("gpt2");
  InferOptions o = options();
  const Plan plain = energonai("{mesh: tp1, call: 0 s}")->inference(model, o, nullptr);
  double t = 0, bytes = 0;
  for (const Op& op : plain.ops)
    if (const auto* g = std::get_if<Gemm>(&plain.work(op)); g && op.layer == 0) t += g->amount({}).flops.base() * 1e-9;
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    if (model.parameters[i].layer == 0) bytes += 8.0 * double(model.parameters[i].elements());
  const std::int64_t every = GENERATE(2, 4);
  const bool back = GENERATE(false, true);
  const double ratio = GENERATE(0.3, 0.49, 0.51, 0.99, 1.01, 1.49, 1.51, 1.99, 2.01, 3.0);  // c / t
  const double c = ratio * t, copy = c / (bytes * 1e-6);
  const Plan plan = energonai(fmt::format("{{mesh: tp1, call: 0 s, peer_every: {}, write_back: {}}}", every, back))
                        ->inference(model, o, nullptr);
  const std::int64_t ahead = every == 2 ? 1 : 2;
  double expected = 0;
  for (std::int64_t group = 0; group < 8 / every; ++group) {
    const double window = double(ahead) * t, before = double(every - 1 - ahead) * t;
    const double start = back && group > 0 ? std::max(c, before) : before;  // since the end of the group before
    expected += std::max(0.0, start + c - (before + window));
  }
  INFO("k " << every << ", write-back " << back << ", copy / block " << ratio);
  CHECK(seconds(plan, copy) - seconds(plain, copy) == Approx(expected).margin(1e-9));
}

TEST_CASE("stages that do not wait for messages are faster, and as many batches are under way as may be",
          "[energonai]") {
  const Model model = small_model("gpt2");
  InferOptions o = options();
  o.batch = 32;
  o.microbatches = 8;
  const auto time = [&](const std::string& options) {
    return seconds(energonai(options)->inference(model, o, nullptr), 0);
  };
  // Messages cost nothing here. p stages of t each, m batches: (m + p − 1)·t; one in flight: m·p·t.
  const double free = time("{mesh: pp4, call: 0 s, in_flight: 8}"), one = time("{mesh: pp4, call: 0 s, in_flight: 1}");
  const double whole = time("{mesh: tp1, call: 0 s}");  // m·p·t, with the head
  CHECK(one == Approx(whole).epsilon(1e-9));
  CHECK(free < one / 2);
  CHECK(time("{mesh: pp4, call: 0 s, in_flight: 2}") > free);
  CHECK(time("{mesh: pp4, call: 1 s, in_flight: 8}") ==
        Approx(free + 8).epsilon(0.01));  // all stages are called at once, m times
}

TEST_CASE("what EnergonAI does not do is refused with a way out", "[energonai]") {
  const Model model = small_model("gpt2");
  CHECK_THAT(user_error([&] { energonai("{mesh: dp2}"); }), Catch::Matchers::Contains("has no axis `dp`"));
  CHECK_THAT(user_error([&] { energonai("{mesh: tp2, blocking: true}"); }),
             Catch::Matchers::Contains("blocking is for pipelines"));
  CHECK_THAT(user_error([&] { energonai("{mesh: tp2, peer_every: 1}"); }), Catch::Matchers::Contains("peer_every 1"));
  CHECK_THAT(user_error([&] { energonai("{mesh: tp2}")->train_step(model, {}, nullptr); }),
             Catch::Matchers::Contains("does not train"));
  CHECK_THAT(user_error([&] {
               InferOptions o = options();
               o.lengths = {1};
               energonai("{mesh: tp2}")->inference(model, o, nullptr);
             }),
             Catch::Matchers::Contains("1 lengths are given for a batch of 4"));
}
