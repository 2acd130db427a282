// SPDX-License-Identifier: Apache-2.0
// Fits of software profiles: which rows they see, and how they search.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/app/accuracy/deviation_fit.hpp"
#include "sim/app/accuracy/inference_rows.hpp"
#include "sim/app/accuracy/profile_fit.hpp"
#include "sim/app/accuracy/published_step.hpp"

using namespace orrery;

TEST_CASE("a profile sees at most 30 % of the rows and nothing of the models held out", "[published]") {
  std::vector<RowOfModel> cases;
  for (int i = 0; i < 200; ++i) cases.push_back({"row-" + std::to_string(i), "model-" + std::to_string(i % 7)});
  const ProfileSplit split = split_for_profile(cases);
  CHECK(std::count(split.fitted.begin(), split.fitted.end(), true) <= 60);
  CHECK(std::count(split.fitted.begin(), split.fitted.end(), true) > 30);
  REQUIRE_FALSE(split.held_out.empty());
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (std::find(split.held_out.begin(), split.held_out.end(), cases[i].model) != split.held_out.end())
      CHECK_FALSE(split.fitted[i]);
}

TEST_CASE("a profile's search trades one number for another where neither alone helps", "[published]") {
  SoftwareProfile start;
  start.products = start.streams = 0.8;
  const std::vector<ProfileNumber> numbers{step_numbers()[0], step_numbers()[2]};
  ProfileCases cases{.rows = {}, .numbers = &numbers, .errors = {}};
  for (int i = 0; i < 40; ++i) cases.rows.push_back({"row-" + std::to_string(i), "model-" + std::to_string(i % 4)});
  cases.errors = [](const std::vector<std::size_t>& rows, const SoftwareProfile& p) {
    std::vector<double> errors;
    for (const std::size_t i : rows)
      errors.push_back(i % 2 == 0 ? 10 * std::log(p.products * p.streams / 0.64) : std::log(p.products / 0.5));
    return errors;
  };
  const ProfileFit fit = fit_profile(start, cases);
  CHECK(fit.profile.products == Approx(0.5).epsilon(0.05));
  CHECK(fit.profile.products * fit.profile.streams == Approx(0.64).epsilon(0.01));
}

// Six numbers, each of which has rows of its own: where all are right, the effects of two steps add up to a loss. Per
// size of a step no more than three rounds of 12 single ones are needed, and no trade (30 a round).
TEST_CASE("a profile's search leaves out trades that single steps do not promise", "[published]") {
  const SoftwareProfile start;
  ProfileCases cases{.rows = {}, .numbers = &step_numbers(), .errors = {}};
  for (int i = 0; i < 60; ++i) cases.rows.push_back({"row-" + std::to_string(i), "model-" + std::to_string(i % 4)});
  int trials = 0;
  cases.errors = [&](const std::vector<std::size_t>& rows, const SoftwareProfile& p) {
    ++trials;
    std::vector<double> errors;
    for (const std::size_t i : rows) {
      const ProfileNumber& n = step_numbers()[i % 6];
      errors.push_back(std::log(n.get(p) / n.get(start) / 0.5));
    }
    return errors;
  };
  const ProfileFit fit = fit_profile(start, cases);
  for (const ProfileNumber& n : step_numbers()) CHECK(n.get(fit.profile) / n.get(start) == Approx(0.5).epsilon(0.02));
  constexpr int kSizes = 6, kTries = 6, kOthers = 4;
  CHECK(trials <= kSizes * 3 * 12 + kTries + kOthers);
}

namespace {

/// Rows by the order of their hash, the highest first, with errors 1, 2, … times `unit`.
std::vector<Miss> misses(const std::string& forecast, int n, double unit, double scatter = 0) {
  std::vector<Miss> all;
  for (int i = 0; i < n; ++i) all.push_back({forecast + std::to_string(i), forecast, 0, scatter});
  std::sort(all.begin(), all.end(),
            [](const Miss& a, const Miss& b) { return place_of(a.row_id) > place_of(b.row_id); });
  for (int i = 0; i < n; ++i) all[std::size_t(i)].error = (i % 2 == 0 ? 1 : -1) * unit * (i + 1);
  return all;
}

ToldDeviation told(const std::vector<ToldDeviation>& all, const std::string& forecast) {
  for (const ToldDeviation& t : all)
    if (t.forecast == forecast) return t;
  return {};
}

}  // namespace

TEST_CASE("a third of the rows tells how far predictions are off, few rows by Student's t", "[published]") {
  std::vector<Miss> all = misses("step", 90, 0.01);  // 30 tell: 0.01 … 0.30
  const std::vector<Miss> few = misses("first", 12, 0.1), two = misses("rate", 5, 1);
  all.insert(all.end(), few.begin(), few.end());
  all.insert(all.end(), two.begin(), two.end());
  const std::vector<ToldDeviation> out = tell_deviations(all);
  CHECK(told(out, "step").told == 30);
  CHECK(told(out, "step").deviation == Approx(0.28 / 1.645).epsilon(1e-3));  // ⌈0.885 · 31⌉ = 28th
  CHECK(told(out, "first").told == 4);
  CHECK(told(out, "first").deviation == Approx(std::sqrt(0.30 / 4) * 2.132 / 1.645).epsilon(1e-3));
  CHECK(told(out, "rate").told == 0);  // two rows are too few
}

TEST_CASE("rows whose source states a scatter tell only where no others do", "[published]") {
  std::vector<Miss> all = misses("step", 9, 0.01), scattered = misses("step", 9, 0.5, 0.2);
  for (Miss& m : scattered) m.row_id += "s";
  all.insert(all.end(), scattered.begin(), scattered.end());
  const std::vector<Miss> alone = misses("offload", 9, 0.5, 0.2);
  all.insert(all.end(), alone.begin(), alone.end());
  const std::vector<ToldDeviation> out = tell_deviations(all);
  CHECK(told(out, "step").rows == 9);
  CHECK(told(out, "step").deviation < 0.1);
  CHECK(told(out, "offload").deviation > 0.5);
}

TEST_CASE("a forecast is as sure as what it is about", "[published]") {
  SoftwareProfile p;
  p.deviation = 0.1, p.memory_deviation = 0.04, p.devices = {"a100"};
  p.deviations = {{"experts", 0.3}, {"elsewhere", 0.2}, {"memory_elsewhere", 0.02}, {"first", 0.05}};
  CHECK(p.deviation_of({}) == 0.1);
  CHECK(p.deviation_of({.device = "a100_pcie_40g"}) == 0.1);
  CHECK(p.deviation_of({.device = "v100"}) == 0.2);
  CHECK(p.deviation_of({.device = "a100_80g", .experts = true}) == 0.3);
  CHECK(p.deviation_of({.kind = "token", .device = "v100"}) == 0.1);
  CHECK(p.deviation_of({.kind = "token", .experts = true}) == 0.1);  // not told apart
  CHECK(p.told_by({.kind = "token", .experts = true}) == "token_experts");
  CHECK(p.deviation_of({.kind = "first"}) == 0.05);
  CHECK(p.deviation_of({.kind = "assumed", .device = "v100"}) == 0.1);
  CHECK(p.deviation_of({.kind = "memory", .device = "v100", .experts = true}) == 0.04);
  SoftwareProfile read = p;
  set_deviations(read, {{"token", 9, 3, 0.5}, {"memory", 9, 3, 0.6}, {"first", 9, 3, 0.7}});
  CHECK(read.deviation == 0.5);
  CHECK(read.memory_deviation == 0.6);
  CHECK(read.deviations == std::map<std::string, double>{{"first", 0.7}});
}

TEST_CASE("Megatron rounds the vocabulary up to 128 words for each rank of tp, PyTorch's models do not",
          "[published]") {
  const auto words = [](const std::string& software, int tp) {
    const CsvTable table{
        "row_id,model,layers,hidden,heads,ffn,ffn_type,vocab,seq,gpu,n_gpus,gpus_per_node,interconnect,software,"
        "precision,tp,pp,dp,mbs,gbs\nr1,GPT,24,2048,16,8192,gelu,50257,2048,V100-32GB-SXM2,8,4,NVLink2," +
            software + ",fp16," + std::to_string(tp) + ",1,,1,512\n",
        "rows.csv"};
    const Wiring wiring{Environment{}};
    const StepOfRow read = read_step(table.row(0), wiring.locations().clusters());
    REQUIRE(std::holds_alternative<PublishedStep>(read));
    return std::get<PublishedStep>(read).network.config.find("vocab_size")->scalar;
  };
  CHECK(words("Megatron-DeepSpeed (ZeRO-1)", 1) == "50304");
  CHECK(words("Megatron-LM", 4) == "50688");
  CHECK(words("HF Transformers + DeepSpeed ZeRO-3", 1) == "50257");
}

TEST_CASE("a batch whose lengths its row leaves open is a forecast of its own kind", "[published]") {
  const Wiring wiring{Environment{}};
  const auto forecast = [&](const std::string& software) {
    const CsvTable t{
        "row_id,model,layers,hidden,heads,ffn,ffn_type,vocab,gpu,n_gpus,interconnect,software,precision,tp,pp,batch,"
        "isl,"
        "osl,latency_ms\nr,BERT,4,1024,16,4096,gelu (2 matrices),,A100 (NVLink),1,NVLink," +
            software + ",FP16,1,1,8,128,0,5\n",
        "t.csv"};
    return std::get<RowPrediction>(make_static_batch_predictor(wiring)->predict(t.row(0))).observations.at(0).forecast;
  };
  CHECK(forecast("FasterTransformer (triton example)") == "assumed");
  CHECK(forecast("FasterTransformer PyTorch op") == "step");
}
