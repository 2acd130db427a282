// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/inference_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hw_models/software_profile.hpp"
#include "sim/app/accuracy/left_out.hpp"
#include "sim/app/accuracy/pass_model.hpp"
#include "sim/app/accuracy/row_recipe.hpp"
#include "sim/app/accuracy/row_software.hpp"
#include "sim/strategy/kernel_fusion.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery {
namespace {

/// A model that counts `factor` times in a row. `sequences`: that choose a token behind it, for which the host takes
/// its time; 0: none do.
struct PassesOfModel {
  double factor = 1;
  std::int64_t sequences = 0;
  std::shared_ptr<PassModel> model;
};

/// What a row asks: models whose times add up.
struct Passes {
  std::string profile;
  Cluster cluster;
  double measured = 0;
  std::optional<std::int64_t> shared_heads;  // of this version, in place of the profile's
  bool assumes_lengths = false;
  std::vector<PassesOfModel> parts;

  double seconds(const Machine& machine, const SoftwareProfile& profile) const {
    if (shared_heads) {
      KernelChoice kernels = machine.cost->kernels();
      kernels.shared_heads = *shared_heads;
      machine.cost->choose_kernels(kernels);
    }
    double sum = 0;
    for (const auto& [factor, sequences, model] : parts) {
      const double host = profile.host_step.base() + double(sequences) * profile.host_sequence.base();
      sum += factor * ((sequences > 0 ? host : 0) + model->seconds(machine, profile.fused));
    }
    return sum;
  }
};
using PassesOfRow = std::variant<Passes, Skip>;

/// Of models of Hugging Face in training, by default.
constexpr double kDropout = 0.1;

std::string_view profile_of(const CsvRow& row) {
  const std::string software = lower_case(row["software"]);
  if (contains(software, "tensorrt-llm")) return "tensorrt_llm_2023";
  if (contains(software, "megatron")) return "megatron_inference_2022";
  if (contains(software, "fastertransformer")) return "fastertransformer";
  if (contains(software, "litgpt") || contains(software, "hugging face")) return "pytorch_generate_2023";
  return {};
}

/// What no plan here does: weights on the host or a disk, or of 4 bits.
std::optional<Skip> unsupported(const CsvRow& row) {
  if (widens_weights(row) || contains(lower_case(row["precision"]), "fp4"))
    return Skip{SkipReason::UnsupportedPrecision, std::string{row["precision"]}};
  for (const std::string_view tier : {"lowest_memory_tier=cpu", "lowest_memory_tier=disk"})
    if (contains(row["extra"], tier)) return Skip{SkipReason::UnsupportedFeature, std::string{tier}};
  return {};
}

/// Whether a token costs the host its time per sequence: steps of FasterTransformer's own example of GPT do, those of
/// its server (NeMo's clients of Triton) do not. What the time goes to is not known.
bool takes_time_for_tokens(const CsvRow& row, std::string_view profile) {
  return profile != "fastertransformer" || !contains(lower_case(row["software"]), "triton");
}

/// TensorRT-LLM takes query heads that share keys together since its version of 2024 (0.8): groups of 8, on Hopper.
/// Before, and with other groups, each head reads its keys by itself.
std::optional<std::int64_t> shared_heads_of(const CsvRow& row, std::string_view profile) {
  if (profile != "tensorrt_llm_2023") return {};
  constexpr std::int64_t kGroup = 8;
  const bool hopper = contains(lower_case(row["gpu"]), "h100") || contains(lower_case(row["gpu"]), "h200");
  const std::int64_t heads = row.integer("heads").value_or(1), of_keys = row.integer("kv_heads").value_or(heads);
  return hopper && row["version_date"] >= "2024" && heads == kGroup * of_keys ? kGroup : 1;
}

/// FasterTransformer's example behind Triton fills half of each row of a batch and leaves padding out (its
/// bert_guide.md has the same difference between plain and "effective" runs); with whole rows the table would stand
/// above the peak rate of the A100.
bool is_half_filled(const CsvRow& row) {
  return contains(lower_case(row["software"]), "triton example") && row["osl"] == "0";
}

/// Megatron-LM stores the scores of attention, and so does FasterTransformer but in half precision for encoders whose
/// heads have 64 numbers, over up to 384 tokens: its getAttentionType.
bool stores_scores(const CsvRow& row, std::string_view profile, std::int64_t tokens) {
  if (profile == "tensorrt_llm_2023") return false;
  if (profile.empty()) return software_of(row).stored_scores;
  const bool encoder = row["osl"] == "0", half = contains(lower_case(row["precision"]), "fp16");
  const std::int64_t hidden = row.integer("hidden").value_or(0), heads = row.integer("heads").value_or(1);
  return !(profile == "fastertransformer" && encoder && half && hidden == 64 * heads && tokens <= 384);
}

/// Seconds of the whole batch, from what the row has. A rate whose page says `out tok/s` is that of all GPUs, whichever
/// column it stands in: the first TensorRT-LLM pages; later ones divide by the GPUs and say so.
double measured_seconds(const CsvRow& row, double batch, double out, double gpus) {
  if (const auto ms = row.number("latency_ms")) return *ms * 1e-3;
  if (const auto ms = row.number("ttft_ms"); ms && out <= 1) return *ms * 1e-3;
  const auto whole = row.number("tokens_per_s"), each = row.number("tokens_per_s_per_gpu");
  if (whole && *whole > 0) return batch * out / *whole;
  const bool is_whole = row["extra"] == "unit_as_printed=out tok/s";
  return each && *each > 0 ? batch * out / (*each * (is_whole ? 1.0 : gpus)) : 0;
}

/// A mesh of the row. FasterTransformer cuts the batch of an encoder into as many parts as there are stages, and these
/// again until a part has at most 4,096 tokens.
struct Layout {
  std::int64_t stages = 1, microbatches = 1;
  std::string mesh;
};
Layout layout_of(const CsvRow& row, std::int64_t batch, std::int64_t sequence) {
  constexpr std::int64_t kMostTokens = 4096;
  Layout l;
  l.stages = std::max<std::int64_t>(1, row.integer("pp").value_or(1));
  const std::int64_t tp = std::max<std::int64_t>(1, row.integer("tp").value_or(1));
  l.mesh = l.stages > 1 ? fmt::format("pp{} tp{}", l.stages, tp) : fmt::format("tp{}", tp);
  std::int64_t part = batch;
  if (l.stages > 1 && part % l.stages == 0) part /= l.stages;
  while (l.stages > 1 && part * sequence > kMostTokens && part % 2 == 0) part /= 2;
  l.microbatches = batch / part;
  return l;
}

/// Prefill, then decode steps whose context grows from the prompt to all but the last token.
void add_generation(Passes& p, const RowNetwork& network, const GenerateOptions& o,
                    const std::shared_ptr<Strategy>& strategy, bool stored_scores, std::int64_t sequences) {
  const auto plans = [network, o, strategy] { return strategy->generation(network.model(network.layers), o, nullptr); };
  p.parts.push_back(
      {1.0, sequences,
       std::make_shared<PassModel>(
           [plans, stored_scores] { return stored_scores ? store_scores(plans().prefill) : plans().prefill; },
           std::vector<Bindings>(1))});
  if (o.tokens < 2) return;
  std::vector<Bindings> contexts(2);
  contexts[0][Symbol::Context] = o.prompt;
  contexts[1][Symbol::Context] = o.prompt + o.tokens - 2;
  p.parts.push_back(
      {double(o.tokens - 1), sequences, std::make_shared<PassModel>([plans] { return plans().decode; }, contexts)});
}

PassesOfRow read_static_batch(const CsvRow& row, const std::string& clusters) {
  Passes p;
  p.profile = profile_of(row);
  if (auto skip = unsupported(row)) return *std::move(skip);
  const auto network = read_network(row);
  if (const auto* skip = std::get_if<Skip>(&network)) return *skip;
  const auto cluster = read_cluster_of(row, clusters);
  if (const auto* skip = std::get_if<Skip>(&cluster)) return *skip;
  p.cluster = std::get<Cluster>(cluster);
  const std::string precision = lower_case(row["precision"]);
  QuantisedOptions quantised;
  if (contains(precision, "fp8")) quantised = {.weights = Quantised::F8, .narrow = Narrow::EightBits};
  if (contains(precision, "int8")) quantised = {.weights = Quantised::I8, .narrow = Narrow::EightBits};
  if (contains(lower_case(row["kv_precision"]), "fp8")) quantised.cache = Quantised::F8;
  const auto batch = row.integer("batch"), out = row.integer("osl");
  auto in = row.integer("isl");
  if (!batch || !in || !out || *batch < 1 || *in < 1 || *out < 0)
    return Skip{SkipReason::Incomplete, "batch, isl or osl is empty"};
  p.measured = measured_seconds(row, double(*batch), double(*out), double(row.integer("n_gpus").value_or(1)));
  if (p.measured <= 0) return Skip{SkipReason::NoMeasurement, "no latency and no rate"};
  const std::int64_t padded = is_half_filled(row) ? *in : 0;
  if (padded > 0) in = std::max<std::int64_t>(1, padded / 2), p.assumes_lengths = true;
  p.shared_heads = shared_heads_of(row, p.profile);
  const bool stored_scores = stores_scores(row, p.profile, *in);
  const Layout layout = layout_of(row, *batch, *in);
  const std::shared_ptr<Strategy> strategy =
      find_strategy("parallel").make(parse_yaml(fmt::format("{{mesh: {}}}", layout.mesh), "row"));
  const RowNetwork& n = std::get<RowNetwork>(network);
  if (*out > 0) {
    if (layout.stages > 1) return Skip{SkipReason::UnsupportedFeature, "generation over stages"};
    const GenerateOptions o{
        .batch = *batch, .prompt = *in, .tokens = *out, .quantised = quantised, .dtype = precision_of(row)};
    add_generation(p, n, o, strategy, stored_scores, takes_time_for_tokens(row, p.profile) ? *batch : 0);
    return p;
  }
  const InferOptions o{.batch = *batch,
                       .sequence = *in,
                       .microbatches = layout.microbatches,
                       .quantised = quantised,
                       .dtype = precision_of(row)};
  p.parts.push_back(
      {1.0, 0,
       std::make_shared<PassModel>(
           [n, o, strategy, stored_scores, padded, stages = layout.stages, tf32 = contains(precision, "tf32")] {
             const std::int64_t each = std::max<std::int64_t>(1, n.layers / stages);
             Plan plan = strategy->inference(n.model(each * stages), o, nullptr);
             if (stored_scores) plan = store_scores(plan, padded);
             return tf32 ? in_tf32(std::move(plan)) : plan;
           },
           std::vector<Bindings>(1))});
  return p;
}

/// A backward pass alone is what a second microbatch adds to a step.
PassesOfRow read_passes(const CsvRow& row, const std::string& clusters) {
  Passes p;
  p.profile = "pytorch_fp32";
  const auto network = read_network(row);
  if (const auto* skip = std::get_if<Skip>(&network)) return *skip;
  const auto cluster = read_cluster_of(row, clusters);
  if (const auto* skip = std::get_if<Skip>(&cluster)) return *skip;
  if (row.integer("n_gpus").value_or(1) != 1) return Skip{SkipReason::UnsupportedFeature, "passes on several GPUs"};
  p.cluster = std::get<Cluster>(cluster);
  const auto batch = row.integer("gbs"), sequence = row.integer("seq");
  const auto ms = row.number("latency_ms");
  if (!batch || !sequence || !ms || *batch < 1 || *sequence < 1 || *ms <= 0)
    return Skip{SkipReason::Incomplete, "gbs, seq or latency_ms is empty"};
  p.measured = *ms * 1e-3;
  const RowNetwork& n = std::get<RowNetwork>(network);
  const bool compiled = contains(row["fusion"], "compile"), trains = contains(row["mode"], "training");
  for (const std::int64_t microbatches : trains ? std::vector<std::int64_t>{2, 1} : std::vector<std::int64_t>{1}) {
    const TrainOptions o{.batch = microbatches * *batch,
                         .microbatches = microbatches,
                         .sequence = *sequence,
                         .stored_scores = true,
                         .dropout = kDropout};
    const InferOptions infer{.batch = *batch, .sequence = *sequence};
    p.parts.push_back({microbatches == 1 && trains ? -1.0 : 1.0, 0,
                       std::make_shared<PassModel>(
                           [=] {
                             const auto strategy = find_strategy("single").make(Node::map());
                             const Plan plan =
                                 trains ? strategy->train_step(n.model(n.layers), o, nullptr)
                                        : store_scores(strategy->inference(n.model(n.layers), infer, nullptr));
                             return compiled ? plan : split_kernels(plan);
                           },
                           std::vector<Bindings>(1))});
  }
  return p;
}

using Read = PassesOfRow (*)(const CsvRow& row, const std::string& clusters);

class PassPredictor final : public RowPredictor {
 public:
  PassPredictor(const Wiring& wiring, Read read) : wiring_{wiring}, read_{read} {}

  RowResult predict(const CsvRow& row) const override {
    try {
      const PassesOfRow read = read_(row, wiring_.locations().clusters());
      if (const auto* skip = std::get_if<Skip>(&read)) return *skip;
      const Passes& p = std::get<Passes>(read);
      const SoftwareProfile& profile = profiles_.of(p.profile);
      const Machine machine = wiring_.machine(p.cluster);
      profile.apply(*machine.cost);
      const Forecast forecast{.kind = p.assumes_lengths ? "assumed" : "step", .device = p.cluster.device};
      return RowPrediction{{observe(row, {"latency", p.measured, p.seconds(machine, profile), forecast}, profile)}, {}};
    } catch (const UserError& e) {
      return Skip{SkipReason::UnsupportedFeature, e.what()};
    }
  }

 private:
  const Wiring& wiring_;
  Read read_;
  Profiles profiles_;
};

}  // namespace

std::vector<ProfileCase> inference_cases(const CsvTable& table, const Wiring& wiring, std::string_view profile) {
  std::vector<ProfileCase> cases;
  const Read read = table.column("mode") ? read_passes : read_static_batch;
  for (std::size_t i = 0; i < table.num_rows(); ++i) {
    const CsvRow row = table.row(i);
    if (left_out(row)) continue;
    try {
      PassesOfRow one = read(row, wiring.locations().clusters());
      auto* p = std::get_if<Passes>(&one);
      if (!p || p->profile != profile) continue;
      const auto passes = std::make_shared<Passes>(std::move(*p));
      Machine machine = wiring.machine(passes->cluster);
      passes->seconds(machine, {});
      cases.push_back({std::string{row["row_id"]}, std::string{row["model"]}, std::move(machine), passes->measured,
                       [passes](const Machine& m, const SoftwareProfile& s) { return passes->seconds(m, s); }});
    } catch (const UserError&) {  // a row that is skipped
    }
  }
  return cases;
}

std::unique_ptr<RowPredictor> make_static_batch_predictor(const Wiring& wiring) {
  return std::make_unique<PassPredictor>(wiring, read_static_batch);
}
std::unique_ptr<RowPredictor> make_pass_predictor(const Wiring& wiring) {
  return std::make_unique<PassPredictor>(wiring, read_passes);
}

}  // namespace orrery
