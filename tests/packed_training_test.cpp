// SPDX-License-Identifier: Apache-2.0
// Training steps on windows of documents: what is left of attention, tokens and even ranks.
#include <catch2/catch.hpp>

#include "sim/base/option_error.hpp"
#include "sim/model/load.hpp"
#include "sim/strategy/packed_step.hpp"
#include "sim/strategy/strategy.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

constexpr std::int64_t kWindow = 64;

Model shipped(const std::string& name = "llama-tiny") {
  return load_model(ORRERY_SOURCE_DIR "/scenarios/models/" + name + ".json");
}

TrainOptions packed(double length, PackerKind packer = PackerKind::BestFit) {
  TrainOptions o;
  o.batch = 8, o.sequence = kWindow;
  o.packing = PackingOptions{.packer = packer, .lengths = {.kind = LengthKind::Fixed, .mean = length}};
  return o;
}

TrainOptions of_any_length() {
  TrainOptions o = packed(1);
  o.packing->lengths = {.kind = LengthKind::Uniform, .least = 1, .most = kWindow};
  return o;
}

Plan lowered(const TrainOptions& o, const std::string& strategy = "single", const std::string& options = "{}",
             const Model& model = shipped()) {
  return find_strategy(strategy).make(parse_yaml(options, "strategy"))->train_step(model, o, nullptr);
}

/// FLOP of attention of one rank of each class, forward and backward.
std::vector<double> attention(const Plan& plan) {
  std::vector<double> sums;
  for (const RankClass& c : plan.classes) {
    sums.push_back(0);
    for (const Op& op : plan.ops_of(c)) {
      const Work& w = plan.works[op.work.index()];
      if (std::holds_alternative<AttentionForward>(w) || std::holds_alternative<AttentionBackward>(w))
        sums.back() += amount(w).flops.base();
    }
  }
  return sums;
}

TrainOptions plain(TrainOptions o) {
  o.packing.reset();
  return o;
}

double pairs_of(const PackedWindow& window) {
  double sum = 0;
  for (const DocumentPart& p : window)
    for (std::int64_t i = 0; i < p.length(); ++i) sum += double(i) + 1;
  return sum;
}

}  // namespace

TEST_CASE("attention of windows of documents has the pairs of these", "[packing]") {
  // Four documents of 16 in a window of 64: token i of each sees i, of 64 one by one.
  double document = 0, window = 0;
  for (int i = 1; i <= 16; ++i) document += 4 * i;
  for (int i = 1; i <= 64; ++i) window += i;
  const TrainOptions o = packed(16);
  for (const auto& [strategy, options] : {std::pair{"single", "{}"}, std::pair{"ddp", "{mesh: dp4}"}}) {
    const Plan plan = lowered(o, strategy, options), whole = lowered(plain(o), strategy, options);
    REQUIRE(plan.classes.size() == 1);
    CHECK(attention(plan)[0] == Approx(document / window * attention(whole)[0]));
    CHECK(plan.purpose.padding == 0);
    CHECK(plan.purpose.tokens == whole.purpose.tokens);
  }
  TrainOptions unmasked = o;
  unmasked.packing->mask = false;
  CHECK(attention(lowered(unmasked)) == attention(lowered(plain(o))));
}

TEST_CASE("padding is computed, but is no token and no use", "[packing]") {
  // One document of 48 in each window of 64.
  const TrainOptions o = packed(48);
  const Plan plan = lowered(o), full = lowered(plain(o));
  CHECK(plan.purpose.padding == Approx(0.25));
  CHECK(plan.purpose.tokens == Approx(8 * 48));
  // Each of 16 places of padding sees itself.
  CHECK(attention(plan)[0] / attention(full)[0] == Approx((48 * 49 / 2 + 16) / (64 * 65 / 2.0)));
  const double needed = attention(plan)[0] * (48 * 49 / 2.0) / (48 * 49 / 2 + 16);
  const double products = full.purpose.model_flops.base() - attention(full)[0];
  CHECK(plan.purpose.model_flops.base() == Approx(needed + 0.75 * products));
  CHECK(lowered(packed(32)).purpose.padding == 0);
  TrainOptions filled = o;
  filled.packing->padding = false;
  CHECK(lowered(filled).purpose.padding == 0);
  CHECK(attention(lowered(filled))[0] > attention(plan)[0]);
  // Without a mask tokens see all in front of them, padding is behind.
  TrainOptions unmasked = o;
  unmasked.packing->mask = false;
  CHECK(lowered(unmasked).purpose.model_flops.base() ==
        Approx(attention(full)[0] * (48 * 49) / (64 * 65.0) + 0.75 * products));
}

TEST_CASE("the rank with the longest documents is a class of its own", "[packing]") {
  TrainOptions o = of_any_length();
  const PackedStep eight{.window = kWindow, .ranks = 8, .per_rank = 1, .together = 1, .seed = 1};
  const PackedSamples samples = packed_samples(*o.packing, eight);
  double most = 0, all = 0, padding = 0;
  const std::size_t steps = samples.windows.size() / 8;
  for (std::size_t s = 0; s < steps; ++s) {
    double here = 0;
    for (std::size_t r = 0; r < 8; ++r) {
      std::int64_t tokens = 0;
      for (const DocumentPart& p : samples.windows[8 * s + r]) tokens += p.length();
      const double pairs = pairs_of(samples.windows[8 * s + r]) + double(kWindow - tokens);
      here = std::max(here, pairs), all += pairs, padding += double(kWindow - tokens);
    }
    most += here;
  }
  const PackedAmounts a = packed_amounts(*o.packing, eight);
  CHECK(double(a.slowest) == Approx(most / double(steps)).margin(0.5));
  CHECK(double(a.slowest + 7 * a.others) == Approx(all / double(steps)).margin(4));
  CHECK(1 - a.tokens == Approx(padding / double(samples.windows.size() * kWindow)));
  const Plan plan = lowered(o, "ddp", "{mesh: dp8}"), whole = lowered(plain(o), "ddp", "{mesh: dp8}");
  REQUIRE(plan.classes.size() == 2);
  CHECK(plan.classes[0].size() == 1);
  CHECK(plan.classes[1].size() == 7);
  const double pairs = 64 * 65 / 2.0;
  CHECK(attention(plan)[0] == Approx(double(a.slowest) / pairs * attention(whole)[0]));
  CHECK(attention(plan)[1] == Approx(double(a.others) / pairs * attention(whole)[0]));
  o.packing->balance = true;
  const PackedAmounts even = packed_amounts(*o.packing, eight);
  CHECK(double(even.slowest) / double(even.others) < 1.05);
  CHECK(double(a.slowest) / double(a.others) > 1.2);
}

TEST_CASE("ranks that wait in each microbatch wait for more", "[packing]") {
  TrainOptions o = of_any_length();
  o.batch = 32, o.microbatches = 4;
  const auto slowest = [&](const std::string& kind) {
    return attention(lowered(o, "parallel", "{mesh: dp8, data: {kind: " + kind + "}}"))[0];
  };
  CHECK(slowest("ddp") == slowest("zero1"));
  CHECK(slowest("zero3") > 1.05 * slowest("zero1"));
}

TEST_CASE("classes of the slowest ranks cover a mesh", "[packing]") {
  TrainOptions o = of_any_length();
  o.batch = 16, o.microbatches = 2;
  const Plan plan = lowered(o, "parallel", "{mesh: fsdp2 pp2 dp2 tp2, data: {kind: zero1}}");
  std::int64_t ranks = 0;
  for (const RankClass& c : plan.classes) ranks += c.size();
  CHECK(ranks == 16);
  CHECK(plan.classes.size() == 6);
  CHECK(plan.classes[0].name == "stage 0 longest documents");
  CHECK(plan.classes[0].size() == 2);
}

TEST_CASE("windows of documents are refused where attention cannot tell these apart", "[packing]") {
  const TrainOptions o = packed(16);
  const std::string hint = "\n  hint: leave out one of them";
  const auto refusal = [&](const TrainOptions& options, const std::string& strategy = "single",
                           const std::string& yaml = "{}", const std::string& model = "llama-tiny") {
    return user_error([&] { lowered(options, strategy, yaml, shipped(model)); });
  };
  CHECK(refusal(o, "ring-attention", "{mesh: cp2}") ==
        "packing with an axis cp: a rank has parts of documents, whose other keys it would have to find" + hint);
  CHECK(refusal(o, "optimus-2d", "{mesh: row2 col2}") ==
        "packing with an axis row, col, x, y or z: no attention there is told where documents begin" + hint);
  CHECK(refusal(o, "tensor", "{mesh: tp2, sequence_parallel: true}", "gpt2-tiny") ==
        "packing with sequence_parallel: rows between blocks are not told their positions, which are in a table" +
            hint);
  CHECK(refusal(o, "single", "{}", "gemma2-tiny") ==
        "packing with the model gemma2-tiny: it is for language models whose attention is causal, over whole sequences "
        "and without latents" +
            hint);
  TrainOptions stored = o;
  stored.stored_scores = true;
  CHECK(refusal(stored) == "packing with stored_scores: their softmax is not told where documents begin" + hint);
  CHECK(refusal(packed(16, PackerKind::DataSculpt)) ==
        "packer datasculpt needs texts, and a workload has lengths\n  hint: use largest_fit");
  TrainOptions file = o;
  file.packing->lengths.file = "lengths.txt";
  CHECK(
      refusal(file) ==
      "lengths of the kind fixed are drawn, and not from 'lengths.txt'\n  hint: use kind: empirical, or leave out the "
      "file");
  TrainOptions alone = packed(16, PackerKind::Alone);
  alone.packing->padding = false;
  CHECK(refusal(alone) == "packer alone leaves what a document does not fill\n  hint: use best_fit");
}
