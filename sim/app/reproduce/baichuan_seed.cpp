// SPDX-License-Identifier: Apache-2.0
// BaichuanSEED, Dong and others, arXiv 2408.15079: 7 billion parameters, 3 trillion tokens. Hardware and speed of that
// campaign are not published; those of its sibling are: Baichuan-7B (its README) reached 182 TFLOP/s per GPU, 58.3 % of
// the peak, on a thousand A800 with contexts of 4,096, FlashAttention and fused norms. Ours is a predicted step of that
// network, with nothing calibrated on it. Taken: ZeRO-1 over 1,024 A800 in nodes of 8 with one HDR card each, one
// sample per rank (4.2 million tokens a step, as Llama 2), nothing run again, speed counted in the FLOP that the model
// needs. Quality is no prediction: MMLU is looked up in the authors' curve.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/app/reproduce/reproduction.hpp"
#include "sim/program/campaign.hpp"

namespace orrery::papers::baichuan_seed {
namespace {

constexpr const char* kSibling = "README of Baichuan-7B";
constexpr const char* kDerived = "derived: 3 T tokens at 182 TFLOP/s";
constexpr double kA800s = 1024, kTrillion = 1e12, kSecondsOfDay = 86400;

/// Trillions of tokens, and MMLU, read off the figure on BaichuanSEED's page.
constexpr std::array<std::pair<double, double>, 14> kMmlu{{{0.52, 43.8},
                                                           {0.65, 46.6},
                                                           {0.71, 47.9},
                                                           {0.85, 48.4},
                                                           {0.91, 49.8},
                                                           {0.95, 49.2},
                                                           {1.10, 50.5},
                                                           {1.20, 51.9},
                                                           {1.70, 55.2},
                                                           {2.00, 56.4},
                                                           {2.20, 57.3},
                                                           {2.46, 59.3},
                                                           {2.73, 58.9},
                                                           {3.00, 59.8}}};

/// Between the points of the figure, straight lines.
double looked_up_mmlu(double trillions) {
  const auto above =
      std::find_if(kMmlu.begin() + 1, kMmlu.end() - 1, [=](const auto& p) { return p.first >= trillions; });
  const auto& [x0, y0] = *(above - 1);
  const auto& [x1, y1] = *above;
  return y0 + (y1 - y0) * (trillions - x0) / (x1 - x0);
}

struct SeedInputs {
  std::string name;
  std::string mesh = "dp1024";
  std::int64_t samples = 1;  // of a data-parallel rank
  std::string recompute = "none";
  double trillions = 3, mtbf_hours = 0;
  std::vector<std::pair<std::string, double>> scales = {};
};

std::string seed_scenario(const SeedInputs& in) {
  const std::int64_t replicas = in.mesh == "dp1024" ? 1024 : 512;
  return fmt::format(
      "model: {{model_type: llama, hidden_size: 4096, intermediate_size: 11008, num_hidden_layers: 32, "
      "num_attention_heads: 32, num_key_value_heads: 32, vocab_size: 64000, max_position_embeddings: 4096, "
      "rms_norm_eps: 0.000001, rope_theta: 10000.0, tie_word_embeddings: false}}\ncluster: hgx_a800_x128\nstrategy: "
      "[{{parallel: {{mesh: {}, data: {{kind: zero1}}}}}}]\nworkload: {{train: {{batch: {}, sequence: 4096, dtype: "
      "bf16, recompute: {}}}}}\n",
      in.mesh, replicas * in.samples, in.recompute);
}

struct SeedResult {
  double teraflops, days, device_hours;  // teraflops of one GPU; thousand hours
  Report report;
};

SeedResult seed_campaign(const Reproducer& r, const SeedInputs& in) {
  constexpr double kCheckpoint = 60, kRestart = 600;
  const Report report = r.predict(seed_scenario(in), in.scales).report;
  const TrainingCampaign c = campaign({.tokens = in.trillions * kTrillion,
                                       .step = report.step,
                                       .tokens_per_step = report.tokens_per_step,
                                       .devices = static_cast<std::int64_t>(kA800s),
                                       .mtbf = in.mtbf_hours * 3600,
                                       .checkpoint = kCheckpoint,
                                       .restart = kRestart});
  return {report.model_flops / report.step / kA800s * 1e-12, c.wall / kSecondsOfDay, c.device_hours * 1e-3, report};
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  const SeedInputs stated{.name = "as stated"};
  const SeedResult ours = seed_campaign(r, stated);
  const double flops = ours.report.model_flops / ours.report.tokens_per_step * 3 * kTrillion;
  Reproduction out;
  out.claims = {
      {"speed of an A800 of about a thousand", kSibling, 182, ours.teraflops, "TFLOP/s", 0.1,
       fmt::format("predicted for 1,024 with ZeRO-1, {} of a device",
                   to_text(Bytes{double(ours.report.memory.bytes)}))},
      {"work of 3 T tokens", kDerived, 1.36e23, flops, "FLOP", 0.03, "6 per parameter and token, causal attention"},
      {"3 T tokens on 1,024 A800", kDerived, 8.4, ours.days, "days", 0.1, "without failures; not printed anywhere"}};
  out.quantities = {"TFLOP/s", "days", "thousand GPU hours", "MMLU, looked up"};
  out.ablations = {{"paper", {182.0, 8.4, 207.0, 60.25}}};
  const SeedInputs others[] = {
      stated,
      {.name = "2 samples per rank", .samples = 2},
      {.name = "matrices in 2 parts, 2 samples", .mesh = "dp512 tp2", .samples = 2},
      {.name = "all run again", .recompute = "full"},
      {.name = "products at 0.9 of the rate", .scales = {{"gemm.rate", 0.9}}},
      {.name = "a GPU fails in 50,000 h, checkpoints of 1 min, restarts of 10", .mtbf_hours = 5e4},
      {.name = "a GPU fails in 10,000 h", .mtbf_hours = 1e4},
      {.name = "2 T tokens", .trillions = 2},
      {.name = "1 T tokens", .trillions = 1}};
  for (const SeedInputs& in : others) {
    const SeedResult s = seed_campaign(r, in);
    out.ablations.push_back({in.name, {s.teraflops, s.days, s.device_hours, looked_up_mmlu(in.trillions)}});
  }
  return out;
}

}  // namespace orrery::papers::baichuan_seed
