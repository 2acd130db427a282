// SPDX-License-Identifier: Apache-2.0
// The dense-to-sparse gate, Nie and others, arXiv 2112.14397: a mixture of 1.5 B parameters on OpenWebText reaches
// Switch's validation perplexity in half of its time, with 1.42 times its FLOPs-efficiency. What the text of the first
// version leaves open is taken from the released code (fairseq, codecaution/EvoMoE): 24 blocks 1,024 wide, dropout 0.1,
// blocks that run again, no capacity while the gate gets sparse.
// Assumed: 16 experts in every second block (1.5 B parameters with plain layers of 4,096; gated ones of 8/3 in their
// place have as many), 8 A100 with two experts each, 8 samples of 1,024 tokens on each, τ from 2 to 0.3 over the first
// half of the updates and top-1 behind, logits that spread by 2, capacity 1.25 for Switch as in its own paper (arXiv
// 2101.03961), rows chosen evenly. How many updates Switch needs for one of the other is no matter of arithmetic: it is
// solved from the FLOPs-efficiency, and what is left to predict is the time of a FLOP.
#include <fmt/format.h>

#include <algorithm>

#include "sim/app/reproduce/reproduction.hpp"

namespace orrery::papers::dense_to_sparse {
namespace {

constexpr const char* kAbstract = "arXiv 2112.14397v1, abstract";
constexpr double kFlopsEfficiency = 1.42, kSpeedup = 2.0;
constexpr int kUpdates = 8;  // of the falling temperature that are simulated; the next one is top-1

struct GateInputs {
  std::int64_t experts = 16, samples = 8;
  double spread = 2, capacity = 1.25;
  double share = 0.5;  // of the updates before top-1
  bool as_released = false;
};

/// Arithmetic and time of a step.
struct StepCost {
  double flops = 0, seconds = 0;
  StepCost operator*(double x) const { return {flops * x, seconds * x}; }
  StepCost operator+(const StepCost& b) const { return {flops + b.flops, seconds + b.seconds}; }
};

StepCost step_cost(const Reproducer& r, const GateInputs& in, const std::string& gate) {
  const Report report =
      r.predict(fmt::format("model: {{model_type: qwen3_moe, hidden_size: 1024, intermediate_size: 2736, "
                            "moe_intermediate_size: 2736, head_dim: 64, num_hidden_layers: 24, num_attention_heads: "
                            "16, num_key_value_heads: 16, num_experts: {}, num_experts_per_tok: 1, norm_topk_prob: "
                            "false, decoder_sparse_step: 2, vocab_size: 50304, max_position_embeddings: 1024, "
                            "tie_word_embeddings: true}}\n"
                            "cluster: dgx_a100\n"
                            "strategy: [expert: {{mesh: ep8}}]\n"
                            "workload: {{train: {{batch: {}, sequence: 1024, dtype: f16, recompute: full, dropout: "
                            "0.1, {}}}}}\n",
                            in.experts, 8 * in.samples, gate))
          .report;
  return {report.model_flops, report.step};
}

StepCost switch_cost(const Reproducer& r, const GateInputs& in) {
  return step_cost(r, in, fmt::format("capacity_factor: {}", in.capacity));
}

StepCost gate_cost(const Reproducer& r, const GateInputs& in, int update) {
  return step_cost(r, in,
                   fmt::format("dense_to_sparse: {{tau_max: 2, tau_min: 0.3, updates: {}, hard_from: {}, spread: {}, "
                               "update: {}, dispatch: {}}}",
                               kUpdates - 1, kUpdates, in.spread, update, in.as_released ? "dense" : "sparse"));
}

/// The mean over a training.
StepCost mean_gate_cost(const Reproducer& r, const GateInputs& in) {
  StepCost falling;
  for (int update = 0; update < kUpdates; ++update) falling = falling + gate_cost(r, in, update) * (1.0 / kUpdates);
  return falling * in.share + gate_cost(r, in, kUpdates) * (1 - in.share);
}

/// Over Switch's: of the first update, the last of the falling temperature, top-1, and the mean. Then how many updates
/// Switch needs for one of the gate, and how much sooner this is there.
struct GateStudy {
  StepCost first, last, hard, mean;
  double updates = 0, speedup = 0;
};

GateStudy study(const Reproducer& r, const GateInputs& in) {
  const StepCost base = switch_cost(r, in);
  const auto over = [&](const StepCost& c) { return StepCost{c.flops / base.flops, c.seconds / base.seconds}; };
  GateStudy s{over(gate_cost(r, in, 0)),
              over(gate_cost(r, in, kUpdates - 1)),
              over(gate_cost(r, in, kUpdates)),
              over(mean_gate_cost(r, in)),
              {},
              {}};
  s.updates = kFlopsEfficiency * s.mean.flops;
  s.speedup = s.updates / s.mean.seconds;
  return s;
}

Ablation row_of(std::string name, const GateStudy& s) {
  return {std::move(name),
          {s.first.flops, s.first.seconds, s.last.flops, s.last.seconds, s.hard.flops, s.hard.seconds, s.mean.flops,
           s.mean.seconds, s.updates, s.speedup}};
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  Reproduction out;
  out.quantities = {"FLOP, tau 2", "time, tau 2", "FLOP, tau 0.3", "time, tau 0.3", "FLOP, top-1",
                    "time, top-1", "FLOP, mean",  "time, mean",    "updates",       "speed-up"};
  const GateStudy base = study(r, {});
  out.ablations.push_back(row_of("as assumed, over Switch's", base));
  const std::pair<const char*, GateInputs> others[] = {
      {"capacity 1 for Switch", {.capacity = 1}},
      {"capacity 2 for Switch", {.capacity = 2}},
      {"logits spread by 1", {.spread = 1}},
      {"logits spread by 4", {.spread = 4}},
      {"a tenth of the updates", {.share = 0.1}},
      {"all updates before top-1", {.share = 1}},
      {"32 experts", {.experts = 32}},
      {"2 samples on a GPU", {.samples = 2}},
      {"masks multiplied, as released, 2 samples", {.samples = 2, .as_released = true}}};
  for (const auto& [name, inputs] : others) out.ablations.push_back(row_of(name, study(r, inputs)));
  out.claims = {{"FLOP to the same perplexity, Switch's over the gate's", kAbstract, kFlopsEfficiency,
                 base.updates / base.mean.flops, "x", 0.01,
                 fmt::format("sets Switch's updates for one of the gate: {:.2f}", base.updates), true},
                {"time to the same perplexity, Switch's over the gate's", kAbstract, kSpeedup, base.speedup, "x", 0.1,
                 "a FLOP of the gate would have to take 0.71 of the time of Switch's"}};
  return out;
}

}  // namespace orrery::papers::dense_to_sparse
