// SPDX-License-Identifier: Apache-2.0
#include "sim/program/programs.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/program/data.hpp"
#include "sim/program/embedding/cached_rows.hpp"
#include "sim/strategy/indices.hpp"
#include "sim/strategy/offload/cached_embedding.hpp"
#include "sim/strategy/packed_step.hpp"

namespace orrery {
namespace {

struct RepeatedStep {
  std::int64_t count = 1;
  DataSource::Sizes sizes;
  Targets targets = Targets::Without;
  std::vector<std::string> outputs;
  std::int64_t points = 1, history = 0;  // of an iteration, and of the ring of a plan that predicts gradients
};

/// One plan over and over, each time on a new batch.
class RepeatedPlan final : public Program {
 public:
  RepeatedPlan(Plan plan, DataSource data, RepeatedStep step) : data_{std::move(data)}, step_{std::move(step)} {
    plans_.push_back(std::move(plan));
  }

  std::span<const Plan> plans() const override { return plans_; }
  void leave_out_samples() override { with_samples_ = false; }

  std::optional<Step> next() override {
    if (done_ == step_.count) return std::nullopt;
    Step s;
    const std::int64_t before = step_.points * done_++;
    s.bindings[Symbol::Step] = before + 1;
    if (with_samples_) s.inputs = data_.batch(step_.sizes, step_.targets);
    for (const std::string_view port : {"first_keys", "positions"})  // where nobody tells documents apart
      if (!plans_.front().has_port(port)) std::erase_if(s.inputs, [&](const PortValues& v) { return v.port == port; });
    if (step_.history > 0) add_slots(s, before);
    s.outputs = step_.outputs;
    return s;
  }

  void told(const Outcome&) override {}

 private:
  /// The points of an iteration take the places of the oldest ones.
  void add_slots(Step& s, std::int64_t before) const {
    s.bindings[Symbol::Context] = std::min(before, step_.history);
    std::vector<std::int32_t> slots;
    for (std::int64_t i = 0; i < step_.points; ++i)
      slots.push_back(static_cast<std::int32_t>((before + i) % step_.history));
    s.inputs.push_back({"history_slots", std::move(slots), {}});
  }

  std::vector<Plan> plans_;
  DataSource data_;
  RepeatedStep step_;
  std::int64_t done_ = 0;
  bool with_samples_ = true;
};

/// How many points an iteration of a plan has, and how many its predictions know.
void find_ring(const Plan& plan, RepeatedStep& step) {
  if (!plan.has_port("history_slots")) return;
  step.points = plan.shape(plan.find_port("history_slots")).elements();
  for (const Work& w : plan.works)
    if (const auto* c = std::get_if<Covariance>(&w)) step.history = c->history;
}

template <class Options>
DataSource::Sizes sizes_of(const Options& o) {
  return {o.batch, o.sequence, target_length(o.target_sequence, o.sequence)};
}

/// Pieces of the prompt but the last, the last or the whole of it, then a token at a time.
class Generation final : public Program {
 public:
  Generation(const Model& model, const GenerateOptions& options, GenerationPlans plans,
             std::vector<std::int32_t> prompt)
      : options_{options},
        transformer_{std::get<Transformer>(model.network)},
        prompt_{prompts_of(model, options, std::move(prompt))} {
    if (plans.chunk) plans_.push_back(std::move(*plans.chunk));
    prefill_ = static_cast<std::uint32_t>(plans_.size());
    plans_.push_back(std::move(plans.prefill));
    plans_.push_back(std::move(plans.decode));
  }

  std::span<const Plan> plans() const override { return plans_; }

  std::optional<Step> next() override {
    if (drawn_ == options_.tokens) return std::nullopt;
    Step s;
    s.bindings[Symbol::Step] = drawn_;
    if (read_ < options_.prompt) {
      add_piece(s);
    } else {
      s.plan = prefill_ + 1;
      s.bindings[Symbol::Context] = mean_context();
      add_decode_inputs(s);
    }
    if (s.plan >= prefill_) {
      s.outputs = {"next_tokens"};
      ++drawn_;
    }
    return s;
  }

  void told(const Outcome& outcome) override {
    if (drawn_ == 0) return;  // pieces of a prompt draw nothing
    const auto it = outcome.values.find("next_tokens");
    if (it == outcome.values.end()) bug("a generation was not told its tokens");
    last_.assign(it->second.begin(), it->second.end());
  }

 private:
  bool is_pair() const { return !transformer_.encoder.empty(); }

  /// The next tokens of all prompts.
  void add_piece(Step& s) {
    const std::int64_t left = options_.prompt - read_;
    const bool cut = prefill_ > 0 && left > options_.chunk;
    const std::int64_t count = cut ? options_.chunk : left;
    s.plan = cut ? 0 : prefill_;
    s.bindings[Symbol::Context] = read_;
    std::vector<std::int32_t> tokens, positions;
    for (std::int64_t b = 0; b < options_.batch; ++b)
      for (std::int64_t i = read_; i < read_ + count; ++i) {
        tokens.push_back(prompt_[static_cast<std::size_t>(b * options_.prompt + i)]);
        positions.push_back(static_cast<std::int32_t>(i + transformer_.position_offset));
      }
    s.inputs.push_back({"tokens", std::move(tokens), {}});
    if (plans_[s.plan].has_port("positions")) s.inputs.push_back({"positions", std::move(positions), {}});
    if (is_pair())
      s.inputs.push_back(
          {"decoder_tokens", std::vector<std::int32_t>(static_cast<std::size_t>(options_.batch), 0), {}});
    read_ += count;
  }

  /// Tokens of sequence b in the decoder's cache before this step.
  std::int64_t context(std::int64_t b) const {
    if (is_pair()) return drawn_;
    const std::int64_t prompt = options_.lengths.empty() ? options_.prompt : options_.lengths[std::size_t(b)];
    return prompt + drawn_ - 1;
  }
  std::int64_t mean_context() const {
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < options_.batch; ++b) sum += context(b);
    return (sum + options_.batch / 2) / options_.batch;
  }

  void add_decode_inputs(Step& s) const {
    const Plan& plan = plans_[s.plan];
    s.inputs.push_back({is_pair() ? "decoder_tokens" : "tokens", last_, {}});
    std::vector<std::int32_t> contexts, positions;
    for (std::int64_t b = 0; b < options_.batch; ++b) {
      contexts.push_back(static_cast<std::int32_t>(context(b)));
      positions.push_back(static_cast<std::int32_t>(context(b) + transformer_.position_offset));
    }
    if (plan.has_port("positions")) s.inputs.push_back({"positions", std::move(positions), {}});
    if (plan.has_port("contexts")) s.inputs.push_back({"contexts", std::move(contexts), {}});
    if (!plan.has_port("bias_index")) return;
    const RelativeBias& r = *transformer_.decoder.front().attention.relative_bias;
    const std::int64_t capacity = plan.shape(plan.find_port("bias_index"))[1];
    const auto buckets = t5_buckets(context(0), 1, capacity, r.buckets, r.max_distance, false);
    s.inputs.push_back({"bias_index", {buckets.begin(), buckets.end()}, {}});
  }

  GenerateOptions options_;
  const Transformer& transformer_;
  std::vector<Plan> plans_;
  std::vector<std::int32_t> prompt_, last_;
  std::uint32_t prefill_ = 0;          // of the plans; the decode step follows
  std::int64_t read_ = 0, drawn_ = 0;  // tokens of each prompt, and drawn behind it
};

}  // namespace

std::unique_ptr<Program> training_program(const Model& model, const TrainOptions& options, Plan plan,
                                          std::vector<std::int32_t> text) {
  RepeatedStep step{options.steps, sizes_of(options), Targets::With, {"loss"}};
  if (plan.has_port("grad_norm2")) step.outputs.push_back("grad_norm2");
  const auto seed = static_cast<std::uint64_t>(options.seed);
  find_ring(plan, step);
  DataSource data{model, std::move(text), seed, options.id_skew};
  if (options.packing) {
    SampleOrder order = sample_order(plan, options);
    data.pack(
        packed_samples(
            *options.packing,
            {.window = options.sequence, .ranks = order.ranks, .per_rank = options.batch / order.ranks, .seed = seed}),
        std::move(order.samples));
  }
  auto repeated = std::make_unique<RepeatedPlan>(std::move(plan), std::move(data), std::move(step));
  if (cache_of(repeated->plans().front()) == nullptr) return repeated;
  return with_cached_rows(std::move(repeated), id_stream(std::get<Dlrm>(model.network), options.id_skew, seed));
}

std::unique_ptr<Program> generation_program(const Model& model, const GenerateOptions& options, GenerationPlans plans,
                                            std::vector<std::int32_t> prompt) {
  return std::make_unique<Generation>(model, options, std::move(plans), std::move(prompt));
}

std::unique_ptr<Program> inference_program(const Model& model, const InferOptions& options, Plan plan) {
  return std::make_unique<RepeatedPlan>(std::move(plan),
                                        DataSource{model, {}, static_cast<std::uint64_t>(options.seed)},
                                        RepeatedStep{options.steps, sizes_of(options), Targets::Without, {"logits"}});
}

}  // namespace orrery
