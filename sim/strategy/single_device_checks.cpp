// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/single_device_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/option_error.hpp"
#include "sim/strategy/model_parts.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 31;  // rows of an activation; index tensors are 32 bits

void check_positive(std::string_view name, std::int64_t value) {
  if (value < 1) throw OptionError{{std::string{name}}, fmt::format("{} is {}, it must be at least 1", name, value)};
}

void check_rows(std::int64_t batch, std::int64_t sequence) {
  if (batch > kMost || sequence > kMost || double(batch) * double(sequence) >= double(kMost))
    throw OptionError{{"sequence", "prompt", "batch"},
                      fmt::format("batch {} times sequence {} is more than 2^31 rows", batch, sequence),
                      "use more microbatches"};
}

/// Whether the model reads tokens at all, and how many positions it knows.
void check_length(const Model& model, std::string_view name, std::int64_t length) {
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t || !t->tokens) return;
  const auto turns = [](const Block& b) { return b.attention.rope || b.attention.growth; };
  const bool bounded = !t->positions.is_none() || std::any_of(t->decoder.begin(), t->decoder.end(), turns) ||
                       std::any_of(t->encoder.begin(), t->encoder.end(), turns);
  if (bounded && t->max_positions > 0 && length > t->max_positions)
    throw OptionError{
        {"sequence", "prompt"},
        fmt::format("{} {} is more than the {} positions of {}", name, length, t->max_positions, model.name),
        fmt::format("use at most {}", t->max_positions)};
}

void check_decoder(const Model& model) {
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t || t->decoder.empty())
    throw UserError{fmt::format("{} is no language model that generates: it has no decoder", model.name),
                    "use `infer` for it"};
}

bool is_pair(const Model& model) {
  const auto* t = std::get_if<Transformer>(&model.network);
  return t && !t->encoder.empty() && !t->decoder.empty();
}

void check_target(const Model& model, std::int64_t target) {
  if (target > 0 && !is_pair(model))
    throw OptionError{{"target_sequence"},
                      fmt::format("target_sequence is for an encoder-decoder, and {} is none", model.name),
                      "leave it out"};
}

void check_capacity(const Model& model, const TrainOptions& o) {
  if (o.capacity_factor > 0 && !has_experts(model))
    throw OptionError{{"capacity_factor"},
                      fmt::format("capacity_factor is for models of experts, and {} has none", model.name),
                      "leave it out"};
  if (o.capacity_groups > 0 && o.capacity_factor <= 0)
    throw OptionError{{"capacity_groups"}, "capacity_groups without a capacity", "set capacity_factor"};
}

/// What is trained so is Switch's layer where it is not: the weight of one expert is its softmax.
bool is_switch(const MoE& m) {
  return m.top_k == 1 && m.score == RouterScore::Softmax && !m.normalise && m.scaling == 1 && m.groups == 1 &&
         m.selection_bias.is_none() && !m.weighs_input;
}

void check_dense_to_sparse(const Model& model, const TrainOptions& o) {
  if (!o.dense_to_sparse) return;
  const DenseToSparseOptions& d = *o.dense_to_sparse;
  const auto refuse = [](std::vector<std::string> keys, std::string what, std::string hint) {
    throw OptionError{std::move(keys), std::move(what), std::move(hint)};
  };
  if (!has_experts(model))
    refuse({"dense_to_sparse"}, fmt::format("dense_to_sparse is for models of experts, and {} has none", model.name),
           "leave it out");
  for_each_experts(model, [&](int, const MoE& m) {
    if (!is_switch(m))
      refuse({"dense_to_sparse"},
             fmt::format("dense_to_sparse ends at the expert of the largest softmax, by which its rows are weighted; "
                         "{} chooses in another way",
                         model.name),
             "a model of qwen2_moe with num_experts_per_tok 1 and norm_topk_prob false");
  });
  if (o.capacity_factor > 0)
    refuse({"capacity_factor"}, "dense_to_sparse drops no tokens", "leave out capacity_factor");
  if (!o.routing.is_even())
    refuse({"routing"}, "dense_to_sparse expects that all experts are visited equally often", "leave out routing");
  if (d.tau_min > d.tau_max)
    refuse({"tau_min"}, fmt::format("tau_min {} is above tau_max {}", d.tau_min, d.tau_max), "temperatures fall");
  if (d.dispatch == GateDispatch::Dense && (d.buffer > 0 || o.weigh_inside))
    refuse({"buffer", "weigh_inside"}, "dispatch: dense computes all tokens at all experts, weighted behind them",
           "leave out buffer and weigh_inside");
}

void check_dropout(const TrainOptions& o) {
  if (o.attention_dropout > 0 && !o.stored_scores)
    throw OptionError{{"attention_dropout"}, "attention_dropout without scores in memory", "set stored_scores"};
  if (o.eager_attention && !o.stored_scores)
    throw OptionError{{"eager_attention"}, "eager_attention without scores in memory", "set stored_scores"};
}

/// Schedules of what is computed again are made from what inputs in full take.
void check_narrow(const TrainOptions& o) {
  if (!o.keep_narrow) return;
  if (o.narrow != Narrow::EightBits)
    throw OptionError{{"keep_narrow"}, "keep_narrow without products in 8 bits", "set narrow to eight_bits"};
  if (o.recompute == Recompute::Rotor || o.recompute == Recompute::Checkmate)
    throw OptionError{{"keep_narrow"},
                      "keep_narrow with a schedule of what is computed again",
                      "set recompute to none, selective, full or whole"};
}

}  // namespace

void check_train(const Model& model, const TrainOptions& o) {
  if (const auto* t = std::get_if<Transformer>(&model.network);
      t && t->ways && (o.dropout > 0 || keeps_only_inputs(o.recompute)))
    throw OptionError{{"train.recompute", "attention_dropout"},
                      fmt::format("layers of {} are sub-layers side by side", model.name),
                      "train them without dropout, and with recompute none or selective"};
  check_ranges(o);
  if (o.batch % o.microbatches != 0)
    throw OptionError{
        {"microbatches"},
        fmt::format("{} microbatches do not divide a batch of {}", o.microbatches, o.batch),
        fmt::format("batch can be {}{}",
                    o.batch > o.microbatches ? fmt::format("{} or ", o.batch / o.microbatches * o.microbatches) : "",
                    (o.batch / o.microbatches + 1) * o.microbatches)};
  check_dropout(o);
  check_target(model, o.target_sequence);
  check_capacity(model, o);
  check_dense_to_sparse(model, o);
  check_narrow(o);
  check_rows(o.batch / o.microbatches, o.sequence);
  check_length(model, "sequence", o.sequence);
}

void check_generate(const Model& model, const GenerateOptions& o) {
  check_decoder(model);
  check_ranges(o);
  check_rows(o.batch, o.prompt + o.tokens);
  check_length(model, "prompt and tokens together,", o.prompt + o.tokens);
}

void check_serving_step(const Model& model, const ServingStepOptions& o) {
  check_decoder(model);
  if (!std::get<Transformer>(model.network).encoder.empty())
    throw UserError{fmt::format("{} has an encoder: only decoders are served from pages", model.name),
                    "use the workload `generate`"};
  check_positive("rows", o.rows);
  check_positive("sequences", o.sequences);
  check_positive("page", o.page);
  check_positive("pages", o.pages);
  check_positive("max_pages", o.max_pages);
  check_rows(o.pages, o.page);
}

void check_infer(const Model& model, const InferOptions& o) {
  check_ranges(o);
  check_target(model, o.target_sequence);
  check_rows(o.batch, o.sequence);
  check_length(model, "sequence", o.sequence);
}

}  // namespace orrery
