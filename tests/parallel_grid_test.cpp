// SPDX-License-Identifier: Apache-2.0
// Compositions of everything that training splits, each against one device: losses, gradients and weights after two
// steps in float64. A new way to split is a row of the table.
#include <catch2/catch.hpp>

#include "tests/composition_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::int64_t kMicrobatches = 4;  // where a row says nothing else
constexpr Composition kCases[] = {
    // Replicas: as many as parts divide evenly and not, buckets of one block and of several, hybrid shards.
    {"gpt2", "{mesh: dp2}", "{dropout: 0.2}"},
    {"gpt2", "{mesh: dp3, data: {kind: zero1, bucket: 0}}", "{batch: 12, microbatches: 2}"},
    {"gpt2", "{mesh: fsdp3, data: {kind: zero2}}", "{batch: 6, microbatches: 2, recompute: full}"},
    {"gpt2", "{mesh: dp5, data: {kind: zero3, bucket: 9000}}", "{batch: 10, microbatches: 1}"},
    {"gpt2", "{mesh: dp7, data: {kind: zero3, bucket: 0, prefetch: 0}}", "{batch: 14, microbatches: 2}"},
    {"llama", "{mesh: dp2 fsdp2, data: {kind: zero3, prefetch: 3, bucket: 1}}", "{batch: 16}"},
    {"llama", "{mesh: fsdp2 dp2, data: {kind: zero2, bucket: 20000}}", "{batch: 16, optimizer: {kind: sgd}}"},
    {"llama", "{mesh: dp2 fsdp3, data: {kind: zero1, bucket: 2000}}", "{batch: 12, microbatches: 2, dropout: 0.1}"},
    {"llama", "{mesh: fsdp4 dp4, data: {kind: zero3, reshard: false}}", "{batch: 16, microbatches: 1}"},
    // Ranks that own stretches of all weights: parts that fill no rank, a rank that owns nothing, weights on two
    // stages.
    {"gpt2", "{mesh: dp2, data: {kind: zero1, owners: true}}"},
    {"gpt2", "{mesh: dp4, data: {kind: zero1, owners: true, bucket: 0}}", "{batch: 16, dropout: 0.1}"},
    {"llama", "{mesh: dp7, data: {kind: zero1, owners: true, bucket: 20000}}", "{batch: 14, microbatches: 2}"},
    {"llama", "{mesh: dp2 fsdp2, data: {kind: zero1, owners: true}}", "{batch: 16, optimizer: {kind: sgd}}"},
    {"llama", "{mesh: dp4, data: {kind: zero1, owners: true, overlap: false}}", "{batch: 16, recompute: full}"},
    {"mixtral", "{mesh: dp2 ep2, data: {kind: zero1, owners: true}}", "{batch: 16}"},
    {"tied", "{mesh: dp2 pp2, data: {kind: zero1, owners: true}}"},
    {"gpt2", "{mesh: pp2 dp2, schedule: chimera, data: {kind: zero1, owners: true}}"},
    {"gpt2", "{mesh: dp2 tp2, sequence_parallel: true, data: {kind: zero1, owners: true}}", "{optimizer: {clip: 0}}"},
    {"dlrm-tiny", "{mesh: dp4, data: {kind: zero1, owners: true}}", "{batch: 16, microbatches: 2}"},
    // Ranks that keep whole buckets in turn: several each and none, in parts, beside replicas, over several passes.
    {"gpt2", "{mesh: dp3, data: {kind: zero3, owners: true, bucket: 0}}", "{batch: 12, dropout: 0.1}"},
    {"llama", "{mesh: dp2 fsdp2, data: {kind: zero3, owners: true, part: 900}}", "{batch: 16, recompute: full}"},
    {"tied", "{mesh: fsdp3, data: {kind: zero3, owners: true, bucket: 1000000}}",
     "{batch: 12, optimizer: {kind: sgd}}"},
    {"mixtral", "{mesh: fsdp2 dp2, data: {kind: zero3, owners: true, part: 500}}", "{batch: 16, recompute: whole}"},
    {"dlrm-tiny", "{mesh: dp4, data: {kind: zero3, owners: true}}", "{batch: 16, microbatches: 2}"},
    {"mixtral", "{mesh: dp2 fsdp2, data: {kind: zero3}}", "{batch: 16, recompute: full}"},
    {"mixtral", "{mesh: dp2 fsdp2, data: {kind: zero3, part: 500}}", "{batch: 16, recompute: full}"},
    {"tied", "{mesh: fsdp3, data: {kind: zero3, part: 700, bucket: 0}}", "{batch: 12, recompute: whole, dropout: 0.1}"},
    {"llama", "{mesh: dp2 pp2, data: {kind: zero3, part: 900}}", "{batch: 16}"},
    {"bert", "{mesh: dp4, data: {kind: zero3, bucket: 0}}", "{batch: 16, recompute: selective, dropout: 0.1}"},
    {"t5-tiny", "{mesh: dp2, data: {kind: zero3}}", "{target_sequence: 5, recompute: full}"},
    {"t5-tiny", "{mesh: fsdp2 dp2, data: {kind: zero1}}", "{batch: 16, target_sequence: 6}"},
    {"swin-tiny-test", "{mesh: dp2, data: {kind: zero2}}", "{microbatches: 2}"},
    {"dlrm-tiny", "{mesh: dp2 fsdp2, data: {kind: zero3}}", "{batch: 16, microbatches: 2}"},
    {"vit-tiny", "{mesh: dp2, data: {kind: zero1}}", "{batch: 4, microbatches: 2, recompute: full}"},
    // Matrices: a vocabulary of 61 that nothing divides, 28 inner columns over 4.
    {"llama", "{mesh: tp2}", "{recompute: full, dropout: 0.1}"},
    {"llama", "{mesh: tp4, sequence_parallel: true}", "{recompute: full}"},
    {"gpt2", "{mesh: tp2, tensor_overlap: true}", "{recompute: full, dropout: 0.1}"},
    {"llama", "{mesh: tp4, sequence_parallel: true, tensor_overlap: true}", "{recompute: selective}"},
    {"mixtral", "{mesh: tp2, tensor_overlap: true}"},
    // Rows that cross in pieces: three ranks, biases, gates, a projection that no quarter divides, experts, latents.
    {"gpt2", "{mesh: tp2, sequence_parallel: true, tp_comm_overlap: true}", "{dropout: 0.1}"},
    {"llama", "{mesh: tp4, sequence_parallel: true, tp_comm_overlap: true}"},
    {"llama", "{mesh: dp2 tp2, sequence_parallel: true, tp_comm_overlap: true, data: {kind: zero3}}",
     "{recompute: full}"},
    {"gpt2", "{mesh: tp4, sequence_parallel: true, tp_comm_overlap: true}",
     "{recompute: selective, recompute_parts: [norms, activations, feed_forward], dropout: 0.1}"},
    {"mixtral", "{mesh: tp4, sequence_parallel: true, tp_comm_overlap: true}", "{recompute: whole}"},
    {"deepseek-tiny", "{mesh: tp2, sequence_parallel: true, tp_comm_overlap: true}"},
    {"bert", "{mesh: dp2 pp2 tp2, sequence_parallel: true, tp_comm_overlap: true, data: {kind: zero1}}"},
    {"tied", "{mesh: pp2 tp2, sequence_parallel: true, tp_comm_overlap: true, schedule: zb-h1}", "{recompute: full}"},
    {"llama", "{mesh: cp2 tp2, sequence_parallel: true, tp_comm_overlap: true}"},
    {"llama", "{mesh: tp4, tp_comm_overlap: true, layers: [{blocks: 1-2, sequence_parallel: true}]}"},
    {"llama", "{mesh: tp4}", "{recompute: selective, optimizer: {kind: sgd, clip: 0}}"},
    {"tied", "{mesh: tp4, sequence_parallel: true}", "{dropout: 0.3}"},
    {"gpt2", "{mesh: tp4, sequence_parallel: true}", "{recompute: selective, dropout: 0.1}"},
    {"gpt2", "{mesh: tp2}", "{optimizer: {kind: sgd, decay: 0.2}}"},
    {"mixtral", "{mesh: tp4, sequence_parallel: true}", "{recompute: full}"},
    {"mixtral", "{mesh: dp2 tp2}", "{dropout: 0.1}"},
    {"mixtral", "{mesh: dp2 tp2}", "{waits_for_experts: true}"},
    {"bert", "{mesh: tp2, sequence_parallel: true}", "{recompute: full, dropout: 0.2}"},
    {"t5-tiny", "{mesh: tp2}", "{target_sequence: 4}"},
    {"deepseek-tiny", "{mesh: tp2}", "{recompute: full}"},
    {"deepseek-tiny", "{mesh: tp2, sequence_parallel: true}"},
    {"deepseek-tiny", "{mesh: tp2}", "{copied_values: true, recompute: selective, recompute_parts: [latents]}"},
    {"deepseek-tiny", "{mesh: pp2}", "{copied_values: true}"},
    {"deepseek-tiny", "{mesh: tp2, sequence_parallel: true}", "{stored_scores: true, recompute: selective}"},
    {"qwen3-moe-tiny", "{mesh: tp2, sequence_parallel: true}", "{recompute: selective}"},
    // The loss op by op, over shards of the classes and whole; the host waits for it.
    {"llama", "{mesh: tp4, sequence_parallel: true}", "{loss: megatron, waits_for_loss: true}"},
    {"tied", "{mesh: dp2}", "{loss: megatron, waits_for_loss: true, recompute: full}"},
    {"gpt2", "{mesh: pp2 tp2}", "{loss: megatron_copied, recompute: full}"},
    {"llama", "{mesh: dp2}", "{loss: megatron_copied}"},
    {"gpt2", "{mesh: pp2 tp2, blocking: true}", "{loss: megatron, waits_for_loss: true}"},
    // Dropout of stored scores, what it keeps drawn again or kept.
    {"gpt2", "{mesh: dp2 tp2}", "{stored_scores: true, attention_dropout: 0.2}"},
    {"gpt2", "{mesh: tp2, sequence_parallel: true}",
     "{stored_scores: true, attention_dropout: 0.2, dropout: 0.1, dropout_masks: true}"},
    {"llama", "{mesh: pp2 tp2}",
     "{stored_scores: true, attention_dropout: 0.1, dropout: 0.1, dropout_masks: true, recompute: full}"},
    {"bert", "{mesh: dp2 tp2}",
     "{stored_scores: true, attention_dropout: 0.3, dropout_masks: true, recompute: selective}"},
    // Op by op, what attention holds let go behind it.
    {"gpt2", "{mesh: tp2}", "{stored_scores: true, eager_attention: true, recompute: whole}"},
    {"bert", "{mesh: dp2 tp2}",
     "{stored_scores: true, eager_attention: true, attention_dropout: 0.3, dropout_masks: true, recompute: full}"},
    {"llama", "{mesh: pp2}", "{stored_scores: true, eager_attention: true, recompute: selective}"},
    // Stages: uneven, empty but for embedding and head, microbatches that are no multiple of the stages.
    {"gpt2", "{mesh: pp2}", "{microbatches: 1}"},
    {"gpt2", "{mesh: pp3}", "{microbatches: 4, recompute: full}"},
    {"gpt2", "{mesh: pp3, blocking: true}", "{batch: 5, microbatches: 5}"},
    {"gpt2", "{mesh: pp4, stage_layers: [1, 4, 2, 1]}", "{batch: 6, microbatches: 3}"},
    {"gpt2", "{mesh: pp4, stage_layers: [0, 4, 4, 0], schedule: zb-h1}", "{batch: 10, microbatches: 5, dropout: 0.1}"},
    {"tied", "{mesh: pp3, schedule: gpipe}", "{batch: 5, microbatches: 5}"},
    {"llama", "{mesh: pp8}", "{recompute: selective}"},
    {"llama", "{mesh: pp5, schedule: zb-h1}", "{batch: 7, microbatches: 7, optimizer: {kind: sgd}}"},
    {"llama", "{mesh: pp2, schedule: interleaved, chunks: 4}", "{batch: 6, microbatches: 6}"},
    {"gpt2", "{mesh: pp3, schedule: interleaved, chunks: 2}", "{recompute: full, dropout: 0.1}"},
    {"gpt2", "{mesh: pp2, schedule: zb-v}", "{batch: 6, microbatches: 3}"},
    {"tied", "{mesh: pp4, schedule: zb-v, stage_layers: [0, 1, 2, 1, 1, 1, 2, 0]}", "{batch: 9, microbatches: 9}"},
    {"gpt2", "{mesh: pp4, schedule: chimera}", "{batch: 6, microbatches: 6, dropout: 0.1}"},
    {"gpt2", "{mesh: pp2, schedule: chimera, stage_layers: [5, 3]}", "{recompute: full}"},
    {"gpt2", "{mesh: pp4, schedule: dualpipe}", "{microbatches: 8}"},
    {"llama", "{mesh: pp2, schedule: dualpipe, stage_layers: [3, 5]}", "{batch: 6, microbatches: 6}"},
    {"bert", "{mesh: pp2, schedule: zb-h1}", "{recompute: selective, dropout: 0.1}"},
    {"mixtral", "{mesh: pp4}", "{batch: 6, microbatches: 6}"},
    {"deepseek-tiny", "{mesh: pp2, schedule: gpipe}"},
    // ZeRO with matrices, in many orders of the axes.
    {"gpt2", "{mesh: dp2 tp2, sequence_parallel: true, data: {kind: zero3}}", "{recompute: full, dropout: 0.1}"},
    {"gpt2", "{mesh: tp2 dp3, data: {kind: zero1}}", "{batch: 12, microbatches: 2}"},
    {"llama", "{mesh: tp4 dp2, data: {kind: zero2, bucket: 0}}", "{optimizer: {kind: sgd}}"},
    {"llama", "{mesh: fsdp2 tp2 dp2, data: {kind: zero3}}", "{batch: 16, dropout: 0.1}"},
    {"tied", "{mesh: dp2 tp4 fsdp2, sequence_parallel: true, data: {kind: zero3, bucket: 0}}",
     "{batch: 16, recompute: selective}"},
    {"mixtral", "{mesh: tp2 fsdp2, sequence_parallel: true, data: {kind: zero2}}", "{recompute: full}"},
    {"t5-tiny", "{mesh: tp2 dp2, data: {kind: zero3}}", "{target_sequence: 5}"},
    {"deepseek-tiny", "{mesh: dp2 tp2, sequence_parallel: true, data: {kind: zero1}}"},
    // ZeRO with stages.
    {"gpt2", "{mesh: pp2 dp2, data: {kind: zero1}}", "{microbatches: 2, dropout: 0.1}"},
    {"gpt2", "{mesh: dp2 pp3, data: {kind: zero2}, schedule: zb-h1}", "{batch: 8, microbatches: 4}"},
    {"llama", "{mesh: dp2 pp4, data: {kind: zero3, bucket: 0}}", "{recompute: full}"},
    {"gpt2", "{mesh: pp2 fsdp2 dp2, data: {kind: zero3}, schedule: interleaved, chunks: 2}",
     "{batch: 8, microbatches: 2}"},
    {"gpt2", "{mesh: dp2 pp2, data: {kind: zero1}, schedule: chimera}", "{optimizer: {kind: sgd}}"},
    {"llama", "{mesh: pp2 dp2, data: {kind: zero2}, schedule: dualpipe}", "{dropout: 0.1}"},
    {"tied", "{mesh: fsdp2 pp2, data: {kind: zero2}, schedule: zb-v}", "{batch: 6, microbatches: 3}"},
    // Parameters that no gradient reaches; a table that embedding and head of a stage share; copies whose passes end in
    // another order, or that have none; a table whose gradient alone is not split.
    {"deepseek-tiny", "{mesh: dp2, data: {kind: zero2}}", "{microbatches: 2}"},
    {"deepseek-tiny", "{mesh: tp2 dp3, sequence_parallel: true, data: {kind: zero3}}", "{batch: 6, microbatches: 2}"},
    {"gpt2", "{mesh: pp2 dp2, data: {kind: zero3}, schedule: dualpipe}", "{dropout: 0.1}"},
    {"gpt2", "{mesh: pp4, data: {kind: zero2}, schedule: chimera}", "{batch: 3, microbatches: 3}"},
    {"mixtral", "{mesh: pp2 dp2, data: {bucket: 5000}, schedule: chimera}", "{batch: 6, microbatches: 3}"},
    {"gpt2", "{mesh: pp4 tp2, schedule: chimera, data: {kind: zero1}}", "{batch: 2, microbatches: 1}"},
    {"bert", "{mesh: pp2 tp2, sequence_parallel: true, data: {kind: zero3}}", "{microbatches: 2}"},
    // Everything at once.
    {"gpt2", "{mesh: dp2 pp2 tp2, sequence_parallel: true, data: {kind: zero1}}", "{dropout: 0.1}"},
    {"gpt2", "{mesh: dp2 tp2 pp2, data: {kind: zero2}}", "{recompute: full}"},
    {"llama", "{mesh: pp2 dp2 tp2, data: {kind: zero3}}", "{recompute: selective}"},
    {"tied", "{mesh: dp2 pp2 tp2, tensor_overlap: true, data: {kind: zero1}}", "{microbatches: 2}"},
    {"llama", "{mesh: pp2 tp2 dp2, sequence_parallel: true, schedule: zb-h1, data: {kind: zero3, bucket: 0}}"},
    {"tied", "{mesh: tp2 dp2 pp2, schedule: interleaved, chunks: 2}", "{dropout: 0.1, optimizer: {kind: sgd}}"},
    {"tied", "{mesh: tp2 pp2 dp2, schedule: dualpipe, sequence_parallel: true}", "{batch: 8}"},
    {"gpt2", "{mesh: tp2 pp4 dp2, schedule: chimera, data: {kind: zero1, bucket: 0}}", "{dropout: 0.1}"},
    {"llama", "{mesh: fsdp2 pp2 tp2 dp2, sequence_parallel: true, data: {kind: zero3}}",
     "{batch: 8, microbatches: 2, recompute: full, dropout: 0.1}"},
    {"bert", "{mesh: dp2 pp2 tp4, sequence_parallel: true, data: {kind: zero1}}", "{microbatches: 2}"},
    {"mixtral", "{mesh: pp2 tp2 fsdp2, data: {kind: zero3}, schedule: zb-v}", "{microbatches: 4}"},
};

}  // namespace

TEST_CASE("every composition computes what one device computes", "[parallel]") {
  References references;
  double worst = 0;
  for (const Composition& c : kCases) {
    INFO(c.model << " " << c.strategy << " " << c.options);
    const TrainOptions o = options_of(c, Precision::F64, kMicrobatches);
    const Trained many = train(named_model(c.model), o, *parallel(c.strategy));
    const double difference = worst_difference(many, references.of(c, o));
    CHECK(difference < 1e-9);
    worst = std::max(worst, difference);
  }
  CHECK(std::size(kCases) >= 60);
  WARN(std::size(kCases) << " compositions, largest relative difference " << worst);
}

/// Sums in another order differ by the rounding of float32, 6e-8 per operation.
TEST_CASE("gradients in float32 agree with those of one device", "[parallel]") {
  References references;
  for (std::size_t i = 0; i < std::size(kCases); i += std::size(kCases) / 12) {
    const Composition& c = kCases[i];
    INFO(c.model << " " << c.strategy << " " << c.options);
    TrainOptions o = options_of(c, Precision::F32, kMicrobatches);
    const Trained many = train(named_model(c.model), o, *parallel(c.strategy));
    CHECK(worst_difference(many.gradients, references.of(c, o).gradients) < 1e-4);
  }
}
