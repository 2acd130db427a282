// SPDX-License-Identifier: Apache-2.0
// Training steps from the columns of a table: precision, what is recomputed, how the step is spread over ranks, and
// what the software of the time did of itself.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/app/accuracy/published_step.hpp"
#include "sim/app/accuracy/row_recipe.hpp"
#include "sim/app/accuracy/row_software.hpp"
#include "sim/strategy/model_parts.hpp"

namespace orrery {
namespace {

/// BigScience's fork copies logits for its loss ("cloning is required for backward hook": its pull request 155).
LossKind loss_of(const CsvRow& row, const Software& software) {
  const bool is_early = contains(row["version_date"], "2021-05");
  return software.loss == LossKind::MegatronCopied && is_early ? LossKind::Megatron : software.loss;
}

/// BigScience's numbers for V100 are those of the node that was watched: layouts that show 13 and 15 GB run out of
/// memory on devices of 16 GB, where the last stage has the logits (experiments/tr3m-1B3.md).
bool watches_first_node(const CsvRow& row, const Software& software) {
  return software.profile == "megatron_deepspeed_2022" && contains(lower_case(row["gpu"]), "v100");
}

/// torchtitan's torch.compile takes in the loss since 2025.
bool compiles_loss(const CsvRow& row) {
  return is_torchtitan(row) && contains(row["extra"], "compile") && release_of(row) >= 2025;
}

Skip incomplete(std::string what) { return {SkipReason::Incomplete, std::move(what)}; }

/// Samples of MLPerf's BERT are half as long as the longest on average, and are not padded.
constexpr std::int64_t kUnpadded = 2;

/// MLPerf's submissions say little of their types: adapters are trained in 8 bits where they do not say that it is 4,
/// and NVIDIA's BERT and GPT-3 from Hopper on, with Transformer Engine (its developer blog on MLPerf Training 2.1,
/// 2022, and on 4.0, 2024: 904 TFLOP/s of each H100, of 989 in 16 bits).
bool is_eight_bit_submission(const CsvRow& row) {
  if (contains(row["benchmark"], "lora")) return true;
  const std::string gpu = lower_case(row["accelerator"]);
  return (contains(row["benchmark"], "bert") || contains(row["benchmark"], "gpt3")) &&
         (contains(gpu, "h100") || contains(gpu, "h200") || contains(gpu, "b200") || contains(gpu, "blackwell"));
}

Narrow narrow_of(const CsvRow& row) {
  const std::string said = lower_case(row["precision"]) + std::string{row["precision_hint"].substr(0, 3)};
  if (contains(said, "fp4")) return Narrow::FourBits;
  return contains(said, "fp8") || is_eight_bit_submission(row) ? Narrow::EightBits : Narrow::None;
}

std::string axis(std::string_view name, std::int64_t size) {
  return size > 1 ? fmt::format("{}{} ", name, size) : std::string{};
}

/// How many of the replicas split states, in a group of neighbours: "ZeRO-1 over 8 ranks".
std::int64_t sharers_of(const CsvRow& row, std::int64_t replicas) {
  const std::string_view said = row["shard_mode"];
  std::int64_t n = contains(said, "HSDP") ? row.integer("gpus_per_node").value_or(replicas) : replicas;
  if (contains(said, " over ")) {
    const std::vector<double> sizes = numbers_in(said.substr(said.find(" over ")));
    if (!sizes.empty()) n = static_cast<std::int64_t>(sizes.front());  // else "over all data-parallel ranks"
  }
  return n > 1 && replicas % n == 0 ? n : replicas;
}

/// tp has neighbours, then cp, ep, dp; stages are farthest apart (Megatron's order of ranks).
std::variant<RowMesh, Skip> read_mesh(const CsvRow& row, std::int64_t ranks) {
  const auto size = [&](std::string_view column) { return std::max<std::int64_t>(1, row.integer(column).value_or(1)); };
  RowMesh m;
  const std::int64_t tp = size("tp"), cp = size("cp");
  std::int64_t ep = size("ep");
  m.stages = size("pp");
  m.chunks = m.stages > 1 ? size("vpp") : 1;
  const std::int64_t split = tp * cp * m.stages;
  if (ranks % split != 0)
    return incomplete(fmt::format("tp {} · pp {} · cp {} do not make {} GPUs", tp, m.stages, cp, ranks));
  const std::int64_t dp = ranks / split;
  if (const auto said = row.integer("dp"); said && *said != dp)
    return incomplete(fmt::format("dp {} · tp {} · pp {} · cp {} do not make {} GPUs", *said, tp, m.stages, cp, ranks));
  // Where more ranks hold experts than there are replicas, and in these recipes, experts are not cut by tp.
  const bool whole = ep > dp || leaves_experts_whole(row);
  if (whole && tp > 1 && ep % tp == 0 && dp % (ep / tp) == 0) m.whole_experts = true, ep /= tp;
  if (dp % ep != 0) {
    if (ep % dp != 0) return incomplete(fmt::format("ep {} does not fit {} replicas", ep, dp));
    ep = dp;
  }
  const std::int64_t sharers = ep == 1 ? sharers_of(row, dp) : dp;
  m.inner = sharers < dp ? axis("dp", dp / sharers) + axis("fsdp", sharers) : axis("dp", dp / ep) + axis("ep", ep);
  m.inner += axis("cp", cp) + axis("tp", tp);
  m.expert_ranks = ep * (m.whole_experts ? tp : 1), m.expert_stride = cp * (m.whole_experts ? 1 : tp);
  if (m.inner.empty()) m.inner = "dp1 ";
  m.inner.pop_back();
  m.inner_ranks = ranks / m.stages;
  m.replicas = dp;
  m.sharers = sharers;
  return m;
}

/// Samples of a microbatch and microbatches of a step; a microbatch is the least of what is known.
std::optional<Skip> read_batch(const CsvRow& row, const Software& software, PublishedStep& s) {
  const auto batch = row.integer(row.has("gbs") ? "gbs" : "global_batch_size");
  auto samples = row.integer("mbs");
  auto passes = row.integer("n_microbatches");
  if (row.has("benchmark") && batch && !samples) {
    const bool long_samples = row.has("minibatch_per_dp") || contains(row["benchmark"], "lora");
    samples = long_samples ? 1 : std::max<std::int64_t>(1, *batch / s.mesh.replicas);
  }
  // Of software that is not known a step without stages is one pass where nothing else is said.
  const bool is_plain = s.mesh.stages == 1 && software.profile.empty();
  if (is_plain && !passes && (!samples || !batch)) passes = 1;
  if (!samples && batch && passes && *passes > 0) samples = *batch / (*passes * s.mesh.replicas);
  if (!samples || *samples < 1) return incomplete("mbs is empty");
  if (batch) {
    const double exact = double(*batch) / double(*samples * s.mesh.replicas);
    passes = std::max<std::int64_t>(1, std::llround(exact));
    if (std::abs(exact - double(*passes)) > 0.5) return incomplete("batch and microbatch do not fit");
  }
  if (!passes || *passes < 1) return incomplete("gbs is empty");
  s.mesh.samples = *samples;
  s.train.microbatches = *passes;
  s.train.batch = *samples * s.mesh.replicas * *passes;
  return {};
}

/// Megatron-LM and NeMo round the vocabulary up to a multiple of 128 for each rank of tp (make_vocab_size_divisible_by,
/// _vocab_size_with_padding), so that tensor cores find aligned rows: 50257 words become 50304.
void pad_vocabulary(const CsvRow& row, RowNetwork& network) {
  constexpr std::int64_t kMultiple = 128;
  const std::string software = lower_case(row["software"]);
  if (!contains(software, "megatron") && !contains(software, "nemo")) return;
  const std::int64_t step = kMultiple * std::max<std::int64_t>(1, row.integer("tp").value_or(1));
  if (Node* size = network.config.find("vocab_size"))
    size->scalar = std::to_string((std::stoll(size->scalar) + step - 1) / step * step);
}

/// DeepSpeed's ZeRO adds gradients up in f16 where it trains in f16, and in f32 under its BF16_Optimizer alone.
bool keeps_gradients_narrow(const CsvRow& row, const Software& software) {
  return software.profile == "megatron_deepspeed_2022" && contains(lower_case(row["precision"]), "fp16");
}

/// Megatron-Bridge's recipes of DeepSeek-V3 and Moonlight say so (exp_avg_dtype and exp_avg_sq_dtype are bf16).
bool has_narrow_moments(const CsvRow& row) {
  const std::string model = lower_case(row["model"]);
  return contains(lower_case(row["software"]), "megatron-bridge") &&
         (contains(model, "deepseek") || contains(model, "moonlight"));
}

/// Megatron-Core's distributed optimizer copies gradients that are not in f32 before it updates
/// (_copy_model_grads_to_main_grads), but for the precision-aware one, which reads them. Full sharding has another.
bool widens_gradients(const PublishedStep& s, const Software& software) {
  return software.profile == "megatron_core_2024" && s.train.dtype == Precision::BF16 && !s.train.wide_gradients &&
         !s.train.optimizer.narrow_moments && s.parallel.data.kind != DataKind::Zero3;
}

/// Weights of Megatron-Bridge's recipes lie in 8 bits; those with one scale are rounded to 16 first, all of a rank's
/// (cast_master_weights_to_fp8 of Transformer Engine).
bool rounds_weights(const CsvRow& row, const PublishedStep& s) {
  return s.train.keep_narrow && contains(lower_case(row["software"]), "megatron-bridge") &&
         !contains(lower_case(row["precision"]), "mx") && s.parallel.data.kind != DataKind::Zero3;
}

/// reduce_bucket_size of InternEvo's configurations, 512 Mi elements of 2 bytes.
constexpr std::int64_t kOwnersBucket = std::int64_t{1} << 30;
/// Of the flat copies that `cached_per_state` counts, B a parameter: the one that plans with owners have themselves.
constexpr double kFlatInPlan = 2;

void set_data(const CsvRow& row, const Software& software, PublishedStep& s) {
  DataOptions& d = s.parallel.data;
  d.kind = software.data;
  d.overlap = software.overlap;
  s.train.wide_gradients =
      software.wide_gradients && s.train.dtype != Precision::F32 && !keeps_gradients_narrow(row, software);
  s.train.stored_scores = software.stored_scores;
  const std::string shard = lower_case(row["shard_mode"]), fsdp = lower_case(row["fsdp"]);
  if (contains(shard, "none") || contains(shard, "zero-0")) d.kind = DataKind::Ddp;
  if (contains(shard, "zero-1")) d.kind = DataKind::Zero1;
  if (contains(shard, "zero-2")) d.kind = DataKind::Zero2;
  for (const std::string_view all : {"zero-3", "fsdp", "hsdp", "full_shard"})
    if (contains(shard, all)) d.kind = DataKind::Zero3;
  if (contains(shard, "shard_grad_op")) d.kind = DataKind::Zero3, d.reshard = false;
  const bool shards = row.integer("fsdp").value_or(0) > 1;
  if (shards || contains(fsdp, "full") || contains(fsdp, "params")) d.kind = DataKind::Zero3;
  if (s.mesh.replicas == 1 && !contains(s.mesh.inner, "cp")) d.kind = DataKind::Ddp;
  d.owners = software.owners && d.kind == DataKind::Zero1;
  if (d.owners) d.bucket = kOwnersBucket;
  if (d.kind == DataKind::Zero3) d.bucket = 0;
  s.train.optimizer.widen_gradients = widens_gradients(s, software);
  s.rounds_weights = rounds_weights(row, s);
  if (!d.overlap) d.bucket = std::int64_t{1} << 40;
}

/// DeepEP and HybridEP send a token once to each node of its experts, and inside of one node once to each rank: of k
/// even choices among n that is n·(1 − (1 − 1/n)^k). Left out: how it goes on inside of the other nodes; groups of
/// experts that a router keeps to (DeepSeek-V3: 4 of 8).
double share_sent(const CsvRow& row, const PublishedStep& s) {
  const double k = double(row.integer("moe_topk").value_or(0));
  if (k < 1 || s.mesh.expert_ranks < 2 || !sends_tokens_once(row)) return 1;
  const std::int64_t per_node = std::max<std::int64_t>(1, s.cluster.devices_per_node / s.mesh.expert_stride);
  const std::int64_t nodes = (s.mesh.expert_ranks + per_node - 1) / per_node;
  const double n = double(nodes > 1 ? nodes : s.mesh.expert_ranks);
  return n * (1 - std::pow(1 - 1 / n, k)) / k;
}

/// Rows between blocks lie on the ranks of tp where the row or the software says so. Experts have room for what even
/// ones get: buffers of as many rows as have come.
void set_tensor_parallel(const CsvRow& row, const Software& software, PublishedStep& s) {
  const bool said = row.has("seq_parallel");
  const bool splits_rows = said ? contains(row["seq_parallel"], "yes") : software.sequence_parallel;
  s.parallel.sequence_parallel = splits_rows && contains(s.mesh.inner, "tp");
  s.parallel.whole_experts = s.mesh.whole_experts && s.parallel.sequence_parallel;
  s.parallel.tensor_overlap = release_of(row) >= software.tensor_overlap && contains(s.mesh.inner, "tp");
  s.parallel.tp_comm_overlap = software.tp_comm_overlap && s.parallel.sequence_parallel && multiplies_in_pieces(row);
  const bool exchanges = contains(s.mesh.inner, "ep") || s.parallel.whole_experts;
  s.parallel.expert_buffer = exchanges && s.train.capacity_factor == 0 ? 1 : 0;
  s.parallel.expert_overlap = exchanges && hides_exchanges(row);
  s.sent = share_sent(row, s);
}

/// NeMo's GPT-3 drops rows between blocks as Megatron-Core does by default, and its other models do not
/// (hidden_dropout: launcher_scripts/conf/training/gpt3 and nemotron of its launcher, llm/gpt/model/base.py).
double dropout_of(const CsvRow& row, const Software& software) {
  const bool is_nemo = contains(lower_case(row["software"]), "nemo container");
  return is_nemo && contains(lower_case(row["model"]), "gpt3") ? 0.1 : software.dropout;
}

/// Nemotron's activation is a function of NeMo's, and of Megatron-Bridge's, that nothing compiles
/// (llm/fn/activation.py: "remove until we have serialization"; bias_activation_fusion is off).
bool squares_eagerly(const CsvRow& row, const Software& software) {
  return software.profile == "megatron_core_2024" && contains(row["ffn_type"], "relu2");
}

/// Adapters beside weights that stay.
bool trains_adapters(const CsvRow& row) {
  for (const std::string_view column : {"model", "notes", "section", "software"})
    if (contains(lower_case(row[column]), "lora")) return true;
  return contains(lower_case(row["software"]), "adapter");
}

/// Products of PyTorch and TensorFlow in single precision are TF32 where the device has it, from Ampere on.
bool has_tf32(const CsvRow& row, const Cluster& cluster) {
  constexpr std::string_view kBefore[] = {"v100", "p100", "p4", "t4", "rtx_5000"};
  const auto is_of = [&](std::string_view d) {
    return cluster.device == d || cluster.device.starts_with(std::string{d} + "_");
  };
  return contains(lower_case(row["precision"]), "tf32") && std::none_of(std::begin(kBefore), std::end(kBefore), is_of);
}

/// Transformer Engine trains heads of 192 and 128 numbers on Blackwell by a fused kernel from cuDNN 9.11 (July 2025) on
/// and stores their scores before (nvte_get_fused_attn_backend); NVIDIA's scripts of May 2025 run in NeMo 25.04.
bool lacks_latent_attention(const CsvRow& row) {
  const std::string gpu = lower_case(row["gpu"]);
  return contains(lower_case(row["software"]), "dgxc-benchmarking v25.05") && contains(gpu, "b200") &&
         contains(lower_case(row["model"]), "deepseek");
}

}  // namespace

std::string RowMesh::text(std::int64_t n) const { return n > 1 ? fmt::format("pp{} {}", n, inner) : inner; }

StepOfRow read_step(const CsvRow& row, const std::string& folder) {
  const Software software = software_of(row);
  if (widens_weights(row)) return Skip{SkipReason::UnsupportedPrecision, std::string{row["precision"]}};
  PublishedStep s;
  const auto cluster = read_cluster_of(row, folder);
  if (const auto* skip = std::get_if<Skip>(&cluster)) return *skip;
  s.cluster = std::get<Cluster>(cluster);
  const auto network = read_network(row);
  if (const auto* skip = std::get_if<Skip>(&network)) return *skip;
  s.network = std::get<RowNetwork>(network);
  pad_vocabulary(row, s.network);
  const bool is_bert = contains(row["benchmark"], "bert");
  const std::int64_t ranks = *row.integer(row.has("n_gpus") ? "n_gpus" : "n_accelerators");
  if (!row.has("tp") && !row.has("dp") && !row.has("minibatch_per_dp") && !is_bert && ranks > 1)
    return incomplete("the layout is empty");
  const auto mesh = read_mesh(row, ranks);
  if (const auto* skip = std::get_if<Skip>(&mesh)) return *skip;
  s.mesh = std::get<RowMesh>(mesh);
  if (auto skip = read_batch(row, software, s)) return *skip;
  const std::vector<double> sequence = counts_in(row[row.has("seq") ? "seq" : "seq_len"]);
  if (sequence.empty() || sequence.front() < 1) return incomplete("seq is empty");
  s.train.sequence = static_cast<std::int64_t>(sequence.front()) / (is_bert ? kUnpadded : 1);
  s.train.frozen = trains_adapters(row);
  if (sequence.size() > 1) s.train.target_sequence = static_cast<std::int64_t>(sequence[1]);
  s.train.dtype = precision_of(row);
  s.tf32 = has_tf32(row, s.cluster);
  s.train.waits_for_loss = software.waits_for_loss;
  s.train.dropout = dropout_of(row, software);
  s.train.dropout_masks = s.train.dropout > 0;
  s.eager_squares = squares_eagerly(row, software);
  s.train.narrow = narrow_of(row);
  s.train.keep_narrow = software.profile == "megatron_core_2024" && s.train.narrow == Narrow::EightBits;
  if (drops_tokens(row)) s.train.capacity_factor = 1;
  s.train.waits_for_experts = software.profile == "megatron_core_2024" && waits_for_experts(row);
  const Model two_layers = s.network.model(2);
  s.train.weigh_inside = software.profile == "megatron_core_2024" && row.has("n_experts") && !weighs_inputs(two_layers);
  s.train.copied_values = software.profile == "megatron_core_2024" && has_latents(two_layers);
  s.train.optimizer.narrow_moments = has_narrow_moments(row);
  const Recomputed recomputed = recompute_of(row, s.network.layers, s.mesh.stages);
  s.train.recompute = recomputed.kind;
  s.train.recompute_parts = recomputed.parts;
  s.recomputed = recomputed.share;
  s.graphs = share_of_graphs(row);
  s.profile = software.profile;
  const bool compiles = contains(row["extra"], "compile") && is_torchtitan(row);
  if (compiles) s.profile = "torchtitan_compiled_2024";
  if (s.train.dtype != Precision::F32) s.train.loss = compiles_loss(row) ? LossKind::Widened : loss_of(row, software);
  s.parallel.schedule = s.mesh.chunks > 1 ? "interleaved" : "1f1b";
  if (s.mesh.chunks > 1) s.parallel.chunks = s.mesh.chunks;
  s.parallel.blocking = software.blocking && s.mesh.stages > 1 && s.mesh.chunks == 1;
  set_data(row, software, s);
  s.first_node_watched = watches_first_node(row, software);
  s.cached_per_state = contains(lower_case(row["shard_mode"]), "fsdp") ? 0 : software.cached_per_state;
  if (s.parallel.data.owners) s.cached_per_state -= kFlatInPlan;
  set_tensor_parallel(row, software, s);
  if (contains(lower_case(row["model"]), "t5")) s.train.stored_scores = false;  // it adds a bias to them
  if (lacks_latent_attention(row)) s.train.stored_scores = true;
  s.train.attention_dropout = s.train.stored_scores ? software.dropout : 0;
  return s;
}

}  // namespace orrery
