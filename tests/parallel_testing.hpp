// SPDX-License-Identifier: Apache-2.0
// A training step on a mesh against the same step on one device: losses, gradients and weights after a few steps.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sim/base/yaml.hpp"
#include "tests/network_testing.hpp"
#include "tests/small_models.hpp"

namespace orrery::testing {

/// What some training steps came to: the loss of each, and per parameter the last gradient and the weights after it.
struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<double>> gradients, weights;
};

/// An optimizer of which every part shows in three steps: weights decay, and the norm of gradients is clipped.
inline OptimizerOptions clipped_optimizer(OptimizerKind kind = OptimizerKind::AdamW) {
  return {.kind = kind, .rate = 0.01, .epsilon = 1e-3, .decay = 0.1, .clip = 0.5};
}

/// Steps in float64, with dropout and that optimizer.
inline TrainOptions double_steps(std::int64_t batch, std::int64_t microbatches, std::int64_t sequence,
                                 std::int64_t steps) {
  TrainOptions o;
  o.batch = batch;
  o.microbatches = microbatches;
  o.sequence = sequence;
  o.steps = steps;
  o.dtype = Precision::F64;
  o.dropout = 0.1;
  o.optimizer = clipped_optimizer();
  return o;
}

/// Runs all steps and reads losses and weights; `done` may read more while the plan is there.
template <class Done>
Trained train_steps(const Model& model, const TrainOptions& o, Plan lowered, Executor& executor, Done&& done) {
  auto program = training_program(model, o, std::move(lowered), {});
  const Plan& plan = program->plans().front();
  executor.prepare(plan);
  fill(executor, plan, model, 3, 0.02);
  Trained t;
  while (auto step = program->next()) {
    put(executor, plan, step->inputs);
    executor.execute(plan, step->bindings);
    t.losses.push_back(read_port(executor, plan, "loss")[0]);
  }
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    t.weights.push_back(read_parameter(executor, plan, ParameterId{i}, model.parameters[i].elements()));
  done(plan, t);
  return t;
}

inline Trained train(const Model& model, const TrainOptions& o, Plan lowered, Executor& executor) {
  return train_steps(model, o, std::move(lowered), executor, [&](const Plan& plan, Trained& t) {
    for (std::size_t i = 0; i < model.parameters.size(); ++i)
      t.gradients.push_back(read_gradient(executor, plan, ParameterId{i}, model.parameters[i].elements()));
  });
}

inline Trained train(const Model& model, const TrainOptions& o, Plan lowered) {
  return train(model, o, std::move(lowered), *make_host_executor());
}

inline Trained train(const Model& model, const TrainOptions& o, const Strategy& strategy) {
  return train(model, o, strategy.train_step(model, o, &host_workspaces()));
}

inline double norm(const std::vector<double>& a) {
  double sum = 0;
  for (const double x : a) sum += x * x;
  return std::sqrt(sum);
}

/// The largest ‖a − b‖ / max(‖b‖, 1e-6·‖all of b‖) over the parameters; what is missing on one side counts as 1.
inline double worst_difference(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  double all = 0, worst = 0;
  for (const auto& x : b) all += norm(x) * norm(x);
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (b[i].empty()) continue;  // no gradient on one device
    if (a[i].size() != b[i].size()) return 1;
    std::vector<double> d(b[i].size());
    for (std::size_t k = 0; k < d.size(); ++k) d[k] = a[i][k] - b[i][k];
    const double difference = norm(d) / std::max(norm(b[i]), 1e-6 * std::sqrt(all));
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  return worst;
}

inline double worst_difference(const Trained& a, const Trained& b) {
  double worst = std::max(worst_difference(a.gradients, b.gradients), worst_difference(a.weights, b.weights));
  for (std::size_t i = 0; i < b.losses.size(); ++i)
    worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
  return worst;
}

inline std::unique_ptr<Strategy> parallel(const std::string& yaml) {
  return find_strategy("parallel").make(parse_yaml(yaml, "strategy"));
}

/// Small networks of every shape that training splits: eight blocks, a vocabulary that nothing divides.
inline Model small_model(const std::string& family) {
  if (family == "gpt2") return gpt2_of({.layers = 8, .heads = 4});
  if (family == "llama" || family == "tied")
    return llama_of({.layers = 8, .heads = 8, .kv_heads = 4, .tied = family == "tied"});
  if (family == "mixtral") return mixtral_of({.inner = 24, .heads = 4, .kv_heads = 4});
  static const std::map<std::string, std::string> configs{
      {"qwen", R"({"model_type": "qwen2_moe", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4,
        "moe_intermediate_size": 8, "shared_expert_intermediate_size": 12, "num_experts": 8, "num_experts_per_tok": 3,
        "norm_topk_prob": false, "decoder_sparse_step": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 61, "max_position_embeddings": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": false})"},
      {"deepseek", R"({"model_type": "deepseek_v3", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
        "moe_intermediate_size": 8, "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 1,
        "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid", "topk_method": "noaux_tc", "num_attention_heads": 2, "num_key_value_heads": 2,
        "kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4,
        "vocab_size": 61, "max_position_embeddings": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": false})"},
      {"llama4", R"({"model_type": "llama4_text", "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 4,
        "intermediate_size_mlp": 24, "interleave_moe_layer_step": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "attention_chunk_size": 5, "floor_scale": 3,
        "vocab_size": 61, "max_position_embeddings": 32, "rope_theta": 10000.0})"},
      {"bert",
       R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 16, "num_hidden_layers": 4,
        "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": 61, "max_position_embeddings": 32,
        "type_vocab_size": 2})"}};
  return model_of_config(configs.at(family), family);
}

/// A small network, or one that comes with the program: "t5-tiny".
inline Model named_model(const std::string& name) {
  return name.find('-') == std::string::npos ? small_model(name) : load_model(shipped_model(name));
}

/// The most that activations take at a time, as the null device counts them.
inline std::int64_t activation_peak(const Plan& plan) {
  const auto executor = make_null_executor();
  executor->prepare(plan);
  Bindings bindings;
  bindings[Symbol::Step] = 1;
  executor->execute(plan, bindings);
  const Timeline t = executor->take();
  std::int64_t fixed = 0;
  for (const auto& [tensor, bytes] : t.peaks.front().owners)
    if (plan.tensors[tensor.index()].persistent) fixed += bytes;
  return t.peaks.front().bytes - fixed;
}

/// Bytes of what a block makes in the forward pass and the backward pass reads.
inline double kept_bytes(const Plan& plan, int layer) {
  std::set<TensorId> made, kept;
  for (const Op& op : plan.ops)
    for (const Operand& o : plan.operands_of(op)) {
      const TensorId owner = plan.owner(o.tensor());
      if (plan.tensors[owner.index()].persistent) continue;
      if (op.phase == Phase::Forward && op.layer == layer && o.writes()) made.insert(owner);
      if (op.phase != Phase::Forward && made.contains(owner)) kept.insert(owner);
    }
  double sum = 0;
  for (const TensorId t : kept) sum += plan.size(t).base();
  return sum;
}

}  // namespace orrery::testing
