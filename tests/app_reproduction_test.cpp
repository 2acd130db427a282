// SPDX-License-Identifier: Apache-2.0
// Published results beside ours: which claims hold is part of the results, so a change of it is seen.
#include "sim/app/reproduce/reproduction.hpp"

#include <cmath>
#include <set>

#include "hw_models/software_profile.hpp"
#include "sim/app/reproduce/optex_study.hpp"
#include "sim/app/speculation_study.hpp"
#include "tests/app_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Result {
  std::string name;
  std::size_t claims, holding, calibrated = 0;
};

const Result kResults[] = {
    {"ring-self-attention", 6, 4},
    {"optimus", 3, 2},
    {"amp", 8, 3, 2},
    {"galvatron", 26, 26},
    {"galvatron-bmw", 26, 24},
    {"colossal-auto", 9, 9},
    {"sky-computing", 13, 13},
    {"memo", 3, 3},
    {"kraken", 4, 4},
    {"energonai", 6, 6},
    {"leviathan", 22, 22},
    {"medusa", 7, 7},
    {"eagle", 7, 5, 2},
    {"clover", 7, 3, 4},
    {"glide-cape", 9, 6, 3},
    {"elixir", 9, 8, 1},
    {"angel-ptm", 6, 5, 1},
    {"zero-offload", 6, 6},
    {"zero-infinity", 6, 6},
    {"flexmoe", 7, 2, 1},
    {"patrickstar", 80, 74, 4},
    {"dense-to-sparse", 2, 0, 1},
    {"cached-embedding", 6, 2},
    {"datasculpt", 16, 14},
    {"baichuan-seed", 3, 3},
    {"het", 39, 19},
    {"ones", 7, 1},
    {"optex", 14, 14},
};

}  // namespace

TEST_CASE("reproductions come to what their table says") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  REQUIRE(reproductions().size() == std::size(kResults));
  for (const Result& r : kResults) {
    INFO(r.name);
    const Reproduction made = find_reproduction(r.name).make(reproducer);
    const std::vector<Claim>& claims = made.claims;
    CHECK(claims.size() == r.claims);
    std::size_t holding = 0, calibrated = 0;
    std::set<std::string> names;
    for (const Claim& c : claims) {
      INFO(c.name << " " << c.ours);
      CHECK(std::isfinite(c.ours));
      CHECK((c.ours > 0 && c.paper > 0 && c.within > 0));
      CHECK(names.insert(c.name).second);
      holding += c.holds();
      calibrated += c.calibrated;
      CHECK(!(c.calibrated && c.holds()));
    }
    CHECK(holding == r.holding);
    CHECK(calibrated == r.calibrated);
    CHECK(made.ablations.size() >= 4);
    for (const Ablation& a : made.ablations) CHECK(a.values.size() == made.quantities.size());
  }
}

TEST_CASE("the largest size that fits is found, and none where nothing fits") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  const auto text = [](std::int64_t batch) {
    return "model: gpt2-tiny\ncluster: dgx_h100\nworkload: {train: {sequence: 256, batch: " + std::to_string(batch) +
           "}}\n";
  };
  const std::int64_t most = reproducer.largest_that_fits(text, 64, 1 << 20);
  CHECK(reproducer.predict(text(most)).report.memory.fits());
  CHECK_FALSE(reproducer.predict(text(most + 64)).report.memory.fits());
  CHECK(reproducer.largest_that_fits(text, 1 << 16, 1 << 20) == 0);
}

TEST_CASE("a question is answered once, and refused again as it was") {
  KnownPredictions known;
  int asked = 0;
  const auto answer = [&]() -> Prediction {
    ++asked;
    return {.forward_seconds = 2};
  };
  const auto refuse = [&]() -> Prediction {
    ++asked;
    throw UserError{"no room", "none"};
  };
  for (int i = 0; i < 2; ++i) {
    CHECK(known.get("fits", answer).forward_seconds == 2);
    CHECK_THROWS_AS(known.get("does not", refuse), UserError);
  }
  CHECK(asked == 2);
}

TEST_CASE("an unknown reproduction is refused with those there are") {
  std::string known;
  for (const ReproductionEntry& r : reproductions()) known += (known.empty() ? "" : ", ") + std::string{r.name};
  CHECK(known.starts_with("ring-self-attention, optimus, amp, "));
  CHECK(user_error([] { find_reproduction("optimos"); }) ==
        "unknown reproduction 'optimos'; did you mean 'optimus'? known reproductions: " + known);
}

TEST_CASE("small models decode as fast as the host starts ops, unless it starts all of them at once") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  const auto decode = [&](const std::string& model, const std::string& launch) {
    return reproducer
        .predict("model: " + model + "\ncluster: dgx_h100\nprofile: fsdp_2023\nlaunch: " + launch +
                 "\nworkload: {generate: {prompt: 128, tokens: 4, dtype: bf16}}\n")
        .report;
  };
  const double call = find_profile("fsdp_2023").launch * 4e-6;  // hw_models/params/h100_sxm.yaml
  const Report small = decode("gpt2", "eager");
  CHECK(small.step == Approx(double(small.ops) * call).epsilon(0.1));
  CHECK(decode("gpt2", "graph").step < 0.8 * small.step);
  const Report large = decode("llama-3-8b", "eager");  // a graph saves what the kernels hide anyway
  CHECK(large.step > 1.5 * double(large.ops) * call);
  CHECK(decode("llama-3-8b", "graph").step == Approx(large.step).epsilon(0.03));
}

TEST_CASE("a loop in PyTorch generates at the published rates of two models, one of which its launches are from") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  const auto rate = [&](const std::string& sizes) {  // LitGPT on one A100 of 40 GB, 16 bits
    const GenerationCase at{"{model_type: llama, " + sizes + "}",
                            "{summary: one, nodes: 1, devices_per_node: 1, device: a100_40g, host: {memory: 1 TiB}, "
                            "device_link: {name: NVLink 3, bandwidth: 300 GB/s, latency: 1 us}, host_link: "
                            "{bandwidth: 31.5 GB/s, latency: 1.5 us}}",
                            "pytorch_generate_2023", 1, 32};
    return generation_speed(reproducer, at, {}).of_sequence();
  };
  CHECK(rate("hidden_size: 4096, intermediate_size: 11008, num_hidden_layers: 32, num_attention_heads: 32") ==
        Approx(30.97).epsilon(0.01));
  CHECK(rate("hidden_size: 5120, intermediate_size: 13824, num_hidden_layers: 40, num_attention_heads: 40") ==
        Approx(24.82).epsilon(0.01));
}

// A round of a chain of 3 has three passes of the drafter: 3 · 2 + 5 + 4 · 0.5 = 13 ms.
TEST_CASE("host times of a speculation are added to its rounds, whether launches hide behind kernels or not") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  const auto* profile = GENERATE("", "pytorch_generate_2023");
  const bool engine = GENERATE(false, true);
  const GenerationCase at{"llama-3-8b", "dgx_h100", profile, 4, 64, "bf16", engine};
  const auto step = [&](const std::string& host) {
    return generation_speed(reproducer, at,
                            "{method: eagle, tree: chain, depth: 3, accuracy: {hits: [[0.7]]}" + host + "}");
  };
  const GenerationSpeed without = step(""), with = step(", host: {level: 2 ms, round: 5 ms, sequence: 0.5 ms}");
  CHECK(with.step - without.step == Approx(13e-3).epsilon(0.02));
  CHECK(with.drafting - without.drafting == Approx(6e-3).epsilon(0.02));
}

TEST_CASE("an engine's kernels take less of a step than one for each line of the model") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  GenerationCase at{"llama-3-8b", "dgx_h100", {}, 1, 64};
  const std::string speculate = GENERATE("", "{method: eagle, accuracy: {hits: [[0.7, 0.1]]}}");
  const double plain = generation_speed(reproducer, at, speculate).step;
  at.engine = true;
  CHECK(generation_speed(reproducer, at, speculate).step < 0.97 * plain);
}

TEST_CASE("a drafter of one layer reads the prompt behind the 32 of its model") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  const GenerationCase at{"llama-3-8b", "dgx_h100", {}, 1, 64, "bf16", true};
  const double alone = generation_speed(reproducer, at, "").prefill;
  const double both =
      generation_speed(reproducer, at, "{method: eagle, tree: chain, depth: 3, accuracy: {hits: [[0.7]]}}").prefill;
  CHECK(alone > 15e9 / 3.35e12);  // the weights are read
  CHECK(both / alone > 1 + 0.5 / 32);
  CHECK(both / alone < 1 + 2.0 / 32);
}

TEST_CASE("the slopes of test functions are those of their values, and one point per iteration is plain Adam") {
  for (const TestFunction f : {TestFunction::Sphere, TestFunction::Rosenbrock, TestFunction::Ackley}) {
    INFO(name_of(f));
    const std::vector<double> x{0.3, -1.2, 0.8, 2.1};
    std::vector<double> g, unused;
    evaluate(f, x, g);
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::vector<double> low = x, high = x;
      low[i] -= 1e-6, high[i] += 1e-6;
      CHECK(g[i] == Approx((evaluate(f, high, unused) - evaluate(f, low, unused)) / 2e-6).epsilon(1e-6).margin(1e-8));
    }
    const OptexStudy study{.function = f, .dimensions = 20};
    CHECK(study.iterations_to(study.plain_value(30), 1, 10, 1, 50) == 30);
    CHECK(study.iterations_to(study.plain_value(30), 2, 10, 1, 3) == 0);
  }
}
