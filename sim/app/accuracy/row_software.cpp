// SPDX-License-Identifier: Apache-2.0
// Programs that train, and what they did when nothing else is said.
#include "sim/app/accuracy/row_software.hpp"

#include "sim/app/accuracy/row_recipe.hpp"

namespace orrery {
namespace {

/// --hidden-dropout and --attention-dropout of Megatron-LM, which BigScience's scripts leave as they are.
constexpr double kMegatronDropout = 0.1;

constexpr Software megatron_core(std::string_view words) {
  return {.words = words,
          .profile = "megatron_core_2024",
          .data = DataKind::Zero1,
          .sequence_parallel = true,
          .tensor_overlap = 0};
}
/// NVIDIA's recipes for benchmarks sum gradients in the type of the activations (grad_reduce_in_fp32 is off,
/// grad_sync_dtype bf16), and their loss computes in the place of the logits (cross_entropy_fusion_impl te).
constexpr Software recipe_of_core(std::string_view words) {
  Software s = megatron_core(words);
  s.wide_gradients = false;
  s.loss = LossKind::Fused;
  s.tp_comm_overlap = true;
  return s;
}
constexpr Software megatron(std::string_view words, bool overlap) {
  constexpr double kAsynchronous = 2022;
  return {.words = words,
          .profile = "megatron_2021",
          .stored_scores = true,
          .overlap = overlap,
          .blocking = true,
          .tensor_overlap = kAsynchronous};
}
constexpr Software big_science(std::string_view words, DataKind data, bool wide_gradients) {
  return {.words = words,
          .profile = "megatron_deepspeed_2022",
          .data = data,
          .stored_scores = true,
          .overlap = false,
          .wide_gradients = wide_gradients,
          .loss = LossKind::MegatronCopied,
          .dropout = kMegatronDropout};
}
/// InternEvo's own ZeRO-1 lays gradients side by side in 16 bits, behind a copy of each in f32 for their norm
/// (HybridZeroOptimizer: _compute_norm_with_stage, _step). Blocks of both are too small for the flat gradient in f32;
/// what FSDP updates has the pieces that it came in.
constexpr double kFlatCopies = 2 + 4;

constexpr Software kSoftware[] = {
    {.words = "llm-foundry",
     .profile = "fsdp_2023",
     .data = DataKind::Zero3,
     .wide_gradients = false,
     .loss = LossKind::Fused},
    {.words = "torchtitan",
     .profile = "fsdp_2023",
     .data = DataKind::Zero3,
     .wide_gradients = false,
     .loss = LossKind::Torch},
    {.words = "internevo",
     .profile = "internevo_2023",
     .data = DataKind::Zero1,
     .owners = true,
     .wide_gradients = false,
     .loss = LossKind::Fused,
     .cached_per_state = kFlatCopies},
    recipe_of_core("megatron-bridge"),
    recipe_of_core("dgxc-benchmarking"),
    recipe_of_core("nemo container"),
    megatron_core("megatron-core"),
    megatron("nemo megatron", true),
    big_science("deepspeed (bigscience", DataKind::Zero1, true),
    big_science("bf16_optimizer", DataKind::Zero1, true),
    big_science("zero-3", DataKind::Zero3, false),
    big_science("zero-1", DataKind::Zero1, false),
    big_science("zero (v1", DataKind::Zero3, false),
    big_science("megatron-deepspeed 3d", DataKind::Zero1, false),
    {.words = "megatron-deepspeed",
     .profile = "megatron_deepspeed_2023",
     .stored_scores = true,
     .overlap = false,
     .blocking = true,
     .waits_for_loss = true},
    megatron("megatron-lm", false),
};
constexpr Software kMlperf{
    .profile = "mlperf_nvidia", .data = DataKind::Zero1, .sequence_parallel = true, .loss = LossKind::Fused};

constexpr Software kMegatronOnCore = megatron_core("megatron-lm");
constexpr double kFirstCore = 2023;  // year of the first Megatron-LM that is Megatron-Core below

constexpr double kFusedAttention = 2023;  // of PyTorch 2.0
constexpr double kFirstYear = 1990;       // numbers below are versions

Software unknown_software(const CsvRow& row, const std::string& name) {
  Software s{.words = {}, .profile = {}, .wide_gradients = false, .loss = LossKind::Torch};
  const double year = release_of(row);
  s.stored_scores = year > kFirstYear && year < kFusedAttention && !contains(name, "flash");
  return s;
}

}  // namespace

Software software_of(const CsvRow& row) {
  if (row.has("benchmark")) return kMlperf;
  const std::string name = lower_case(row["software"]);
  if (contains(name, "megatron-lm") && release_of(row) >= kFirstCore) return kMegatronOnCore;
  for (const Software& s : kSoftware)
    if (contains(name, s.words)) return s;
  return unknown_software(row, name);
}

}  // namespace orrery
