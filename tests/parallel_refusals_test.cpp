// SPDX-License-Identifier: Apache-2.0
// What cannot be split is refused with what can: the whole text of each message.
#include <catch2/catch.hpp>

#include "sim/model/load.hpp"
#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Refusal {
  const char *strategy, *options, *model, *workload, *message;
};

// Of eight blocks, 4 heads (llama: 8, and 4 of keys), sequences of 16 tokens, 16 samples in 4 microbatches.
constexpr Refusal kRefusals[] = {
    {"parallel", "{mesh: dq2}", "gpt2", "{}",
     "unknown axis 'dq'; known axes: dp, fsdp, pp, tp, cp, ep, row, col, depth, x, y, z"},
    {"parallel", "{mesh: dp2 dp2}", "gpt2", "{}",
     "the mesh has two axes `dp`\n"
     "  hint: give each axis once, with all of its ranks"},
    {"parallel", "{mesh: dp2, blocking: true}", "gpt2", "{}",
     "blocking is for pipelines, and for the schedule 1f1b where they train\n"
     "  hint: leave it out, or give the mesh an axis pp"},
    {"parallel", "{mesh: pp2, blocking: true, schedule: gpipe}", "gpt2", "{}",
     "blocking is for pipelines, and for the schedule 1f1b where they train\n"
     "  hint: leave it out, or give the mesh an axis pp"},
    {"parallel", "{mesh: row2 col2}", "gpt2", "{stored_scores: true, attention_dropout: 0.1}",
     "attention_dropout is for heads that are whole or split over tp\n"
     "  hint: leave it out"},
    {"parallel", "{mesh: dp2}", "gpt2", "{attention_dropout: 0.1}",
     "attention_dropout without scores in memory\n"
     "  hint: set stored_scores"},
    {"parallel", "{mesh: dp2}", "gpt2", "{eager_attention: true}",
     "eager_attention without scores in memory\n"
     "  hint: set stored_scores"},
    {"parallel", "{mesh: 2dp}", "gpt2", "{}",
     "'2dp' is no mesh\n"
     "  hint: write axes and sizes, like `dp2 pp4 tp8`"},
    {"parallel", "{mesh: dp}", "gpt2", "{}",
     "'dp' is no mesh\n"
     "  hint: write axes and sizes, like `dp2 pp4 tp8`"},
    {"parallel", "{mesh: dp0}", "gpt2", "{}",
     "axis dp has no ranks\n"
     "  hint: an axis has at least 1 rank"},
    {"parallel", "{mesh: dp999999 tp999999}", "gpt2", "{}",
     "a mesh of 999998000001 ranks\n"
     "  hint: at most 10000000"},
    {"parallel", "{mesh: tp3}", "gpt2", "{}",
     "tp 3 does not divide 4 attention heads\n"
     "  hint: tp can be 1, 2, 4"},
    {"parallel", "{mesh: tp8}", "llama", "{}",
     "tp 8 does not divide 4 key and value heads\n"
     "  hint: tp can be 1, 2, 4"},
    {"parallel", "{mesh: dp3}", "gpt2", "{}",
     "batch 16 is not a multiple of 12, the microbatches of all replicas\n"
     "  hint: batch can be 12 or 24"},
    {"parallel", "{mesh: dp8}", "gpt2", "{}",
     "batch 16 is not a multiple of 32, the microbatches of all replicas\n"
     "  hint: batch can be 32"},
    {"parallel", "{mesh: dp2}", "gpt2", "{batch: 7, microbatches: 1}",
     "batch 7 is not a multiple of 2, the microbatches of all replicas\n"
     "  hint: batch can be 6 or 8"},
    {"parallel", "{mesh: dp2}", "gpt2", "{batch: 16, microbatches: 3}",
     "3 microbatches do not divide a batch of 16\n"
     "  hint: batch can be 15 or 18"},
    {"parallel", "{mesh: pp9}", "gpt2", "{}",
     "9 parts of a pipeline are more than the model's 8 blocks\n"
     "  hint: stages times chunks can be at most 8"},
    {"parallel", "{mesh: pp4, schedule: interleaved, chunks: 4}", "gpt2", "{}",
     "16 parts of a pipeline are more than the model's 8 blocks\n"
     "  hint: stages times chunks can be at most 8"},
    {"parallel", "{mesh: pp2, stage_layers: [3, 3]}", "gpt2", "{}",
     "stage_layers has 2 entries that add up to 6\n"
     "  hint: it needs 2 entries that add up to the model's 8 blocks"},
    {"parallel", "{mesh: pp2, stage_layers: [1, 2, 5]}", "gpt2", "{}",
     "stage_layers has 3 entries that add up to 8\n"
     "  hint: it needs 2 entries that add up to the model's 8 blocks"},
    {"parallel", "{mesh: pp2, stage_layers: [-1, 9]}", "gpt2", "{}",
     "s:1:28: -1 is out of range\n"
     "  {mesh: pp2, stage_layers: [-1, 9]}\n"
     "                             ^\n"
     "  hint: at least 0"},
    {"parallel", "{mesh: dp2, stage_layers: [4, 4]}", "gpt2", "{}",
     "stage_layers cuts the stages of a pipeline, and the mesh has no axis pp\n"
     "  hint: leave it out, or give the mesh an axis pp"},
    {"zero-offload", "{parallel: {mesh: dp2, chunks: 2}}", "gpt2", "{}",
     "chunks cuts the stages of a pipeline, and the mesh has no axis pp\n"
     "  hint: leave it out, or give the mesh an axis pp"},
    {"zero-offload", "{parallel: {mesh: dp2, schedule: 1f2b}}", "gpt2", "{}",
     "unknown schedule '1f2b'; did you mean '1f1b'? known schedules: gpipe, 1f1b, interleaved, chimera, zb-h1, zb-v, "
     "dualpipe"},
    {"parallel", "{mesh: pp2, schedule: 1f2b}", "gpt2", "{}",
     "unknown schedule '1f2b'; did you mean '1f1b'? known schedules: gpipe, 1f1b, interleaved, chimera, zb-h1, zb-v, "
     "dualpipe"},
    {"parallel", "{mesh: pp2, schedule: interleaved, chunks: 1}", "gpt2", "{}",
     "interleaved needs at least 2 chunks per stage, not 1\n"
     "  hint: with 1 chunk per stage, 1f1b does the same with fewer activations"},
    {"parallel", "{mesh: pp2, chunks: 2}", "gpt2", "{}",
     "1f1b has 1 chunk per stage, not 2\n"
     "  hint: only interleaved takes another number"},
    {"parallel", "{mesh: pp3, schedule: chimera}", "gpt2", "{}",
     "chimera needs an even number of stages, not 3\n"
     "  hint: 2 or 4 are legal"},
    {"parallel", "{mesh: pp2, schedule: dualpipe}", "gpt2", "{batch: 16, microbatches: 2}",
     "dualpipe on 2 stages needs an even number of microbatches and at least 4, not 2\n"
     "  hint: 4 or 6 are legal"},
    {"parallel", "{mesh: pp2}", "t5-tiny", "{}",
     "t5-tiny is no single stack of blocks over tokens: it cannot be cut into stages\n"
     "  hint: leave the axis pp out"},
    {"parallel", "{mesh: pp2}", "vit-tiny", "{}",
     "vit-tiny is no single stack of blocks over tokens: it cannot be cut into stages\n"
     "  hint: leave the axis pp out"},
    {"parallel", "{mesh: tp4, sequence_parallel: true}", "gpt2", "{sequence: 5, batch: 4}",
     "rows of a microbatch 5 is not a multiple of 4, split over tp by sequence_parallel\n"
     "  hint: rows of a microbatch can be 4 or 8"},
    {"parallel", "{mesh: cp3}", "gpt2", "{}",
     "sequence 16 is not a multiple of 6, two chunks for each rank of cp\n"
     "  hint: sequence can be 12 or 18"},
    {"parallel", "{mesh: cp16}", "gpt2", "{}",
     "sequence 16 is not a multiple of 32, two chunks for each rank of cp\n"
     "  hint: sequence can be 32"},
    {"parallel", "{mesh: cp8, context: ulysses}", "gpt2", "{}",
     "cp (ulysses) 8 does not divide 4 attention heads of a rank\n"
     "  hint: cp (ulysses) can be 1, 2, 4"},
    {"parallel", "{mesh: cp2}", "vit-tiny", "{}",
     "attention of vit-tiny cannot be cut over cp\n"
     "  hint: cp needs one stack of plain attention and a language-model head"},
    {"parallel", "{mesh: cp2, context: rings}", "gpt2", "{}",
     "s:1:22: unknown value 'rings'\n"
     "  {mesh: cp2, context: rings}\n"
     "                       ^\n"
     "  hint: did you mean 'ring'? known values: ring, ulysses, rsa"},
    {"parallel", "{mesh: ep3}", "mixtral", "{batch: 12}",
     "ep 3 does not divide 4 experts\n"
     "  hint: ep can be 1, 2, 4"},
    {"parallel", "{mesh: ep2}", "gpt2", "{}",
     "gpt2 has no experts for the ranks of ep\n"
     "  hint: use dp for replicas"},
    {"parallel", "{mesh: row2 col3}", "gpt2", "{}",
     "row 2 and col 3 are no square\n"
     "  hint: row and col need the same number of ranks, at least 2: `row2 col2` has 4 ranks, `row3 col3` 9"},
    {"parallel", "{mesh: row2}", "gpt2", "{}",
     "row 2 and col 1 are no square\n"
     "  hint: row and col need the same number of ranks, at least 2: `row2 col2` has 4 ranks, `row3 col3` 9"},
    {"parallel", "{mesh: x2 y2}", "gpt2", "{}",
     "x 2, y 2 and z 1 are no cube\n"
     "  hint: x, y and z need the same number of ranks, at least 2: `x2 y2 z2` has 8 ranks, `x3 y3 z3` 27"},
    {"parallel", "{mesh: row3 col3}", "gpt2", "{batch: 12}",
     "row and col of 3 do not divide 16 hidden columns\n"
     "  hint: each of row and col can be 1, 2, 4, 8, 16"},
    {"parallel", "{mesh: tp2 row2 col2}", "gpt2", "{}",
     "tp, cp and ep cannot stand beside row and col\n"
     "  hint: other axes can be dp, fsdp and pp"},
    {"parallel", "{mesh: depth2}", "gpt2", "{}",
     "row 1 and col 1 are no square\n"
     "  hint: row and col need the same number of ranks, at least 2: `row2 col2` has 4 ranks, `row3 col3` 9"},
    {"parallel", "{mesh: dp2, data: {kind: zero4}}", "gpt2", "{}",
     "s:1:26: unknown value 'zero4'\n"
     "  {mesh: dp2, data: {kind: zero4}}\n"
     "                           ^\n"
     "  hint: did you mean 'zero1'? known values: ddp, zero1, zero2, zero3"},
    {"parallel", "{mesh: dp2, data: {bucket: -1}}", "gpt2", "{}",
     "s:1:28: -1 is out of range\n"
     "  {mesh: dp2, data: {bucket: -1}}\n"
     "                             ^\n"
     "  hint: at least 0"},
    {"parallel", "{mesh: dp2, data: {kind: zero3, prefetch: -1}}", "gpt2", "{}",
     "s:1:43: -1 is out of range\n"
     "  {mesh: dp2, data: {kind: zero3, prefetch: -1}}\n"
     "                                            ^\n"
     "  hint: from 0 to 1000"},
    {"parallel", "{mesh: ep2, expert_buffer: -1}", "mixtral", "{}",
     "s:1:28: -1 is out of range\n"
     "  {mesh: ep2, expert_buffer: -1}\n"
     "                             ^\n"
     "  hint: at least 0"},
    {"parallel", "{mesh: dp2}", "gpt2", "{capacity_factor: 1}",
     "capacity_factor is for models of experts, and gpt2 has none\n"
     "  hint: leave it out"},
    {"single", "{}", "gpt2", "{target_sequence: 8}",
     "target_sequence is for an encoder-decoder, and gpt2 is none\n"
     "  hint: leave it out"},
    {"parallel", "{mesh: tp2, sequence_parallel: true}", "vit-tiny", "{}",
     "vit has no rows to split between blocks\n"
     "  hint: sequence_parallel needs a language model"},
    {"parallel", "{mesh: tp2}", "swin-tiny-test", "{}",
     "swin models are split over replicas only\n"
     "  hint: the axes can be dp and fsdp"},
    {"parallel", "{mesh: fsdp2, data: {kind: ddp}}", "gpt2", "{}",
     "the ranks of fsdp split nothing under `data: {kind: ddp}`\n"
     "  hint: kind can be zero1, zero2 or zero3; use dp for replicas that keep all"},
    {"parallel", "{mesh: dp2, data: {owners: true}}", "gpt2", "{}",
     "owners of weights are for `data: {kind: zero1}` and zero3\n"
     "  hint: leave `owners` out, or say `kind: zero1`"},
    {"parallel", "{mesh: dp2 tp2, data: {kind: zero3, owners: true}}", "gpt2", "{}",
     "owners of whole buckets of zero3 need ranks that are all replicas\n"
     "  hint: use a mesh of dp and fsdp alone, without `layers`, or leave `owners` out"},
    {"parallel", "{mesh: dp2, data: {kind: zero3, owners: true}, layers: [{blocks: 0, recompute: full}]}", "gpt2", "{}",
     "owners of whole buckets of zero3 need ranks that are all replicas\n"
     "  hint: use a mesh of dp and fsdp alone, without `layers`, or leave `owners` out"},
    {"zero-offload", "{parallel: {mesh: dp2, data: {kind: zero1, owners: true}}}", "gpt2", "{}",
     "owners of weights update on their devices: zero-offload updates on the host\n"
     "  hint: leave `owners` out"},
    // Layers that split the ranks of a stage in a way of their own.
    {"parallel", "{mesh: dp4, layers: [{blocks: 4-8, mesh: tp4}]}", "gpt2", "{}",
     "'4-8' are no blocks of the model\n"
     "  hint: its blocks are 0 to 7: write `5`, `0-11` or `0-3,8-11`"},
    {"parallel", "{mesh: dp4, layers: [{blocks: 3-1}]}", "gpt2", "{}",
     "'3-1' are no blocks of the model\n"
     "  hint: its blocks are 0 to 7: write `5`, `0-11` or `0-3,8-11`"},
    {"parallel", "{mesh: dp4, layers: [{blocks: '0-2,', mesh: tp4}]}", "gpt2", "{}",
     "'0-2,' are no blocks of the model\n"
     "  hint: its blocks are 0 to 7: write `5`, `0-11` or `0-3,8-11`"},
    {"parallel", "{mesh: dp4, layers: [{blocks: 0-3, mesh: tp4}, {blocks: 3-5, recompute: full}]}", "gpt2", "{}",
     "block 3 is in blocks 0-3 and in blocks 3-5\n"
     "  hint: say once what each block does"},
    {"parallel", "{mesh: pp2 dp4, layers: [{blocks: 0-3, mesh: dp2 tp4}]}", "gpt2", "{}",
     "the mesh `dp2 tp4` of blocks 0-3 has 8 ranks, a stage of `pp2 dp4` has 4\n"
     "  hint: its axes need 4 ranks together"},
    {"parallel", "{mesh: dp4, layers: [{blocks: 0-3, ffn_mesh: dp2 tp4}]}", "gpt2", "{}",
     "the mesh `dp2 tp4` of blocks 0-3 has 8 ranks, a stage of `dp4` has 4\n"
     "  hint: its axes need 4 ranks together"},
    {"parallel", "{mesh: dp2, layers: [{blocks: 0-1, ffn_mesh: tp2}]}", "mixtral", "{}",
     "feed-forward layers of blocks 0-1 are experts: they lie as attention does\n"
     "  hint: leave out ffn_mesh and ffn_sequence_parallel"},
    {"parallel", "{mesh: tp4, layers: [{blocks: 0-3, ffn_mesh: dp4, ffn_sequence_parallel: true}]}", "gpt2", "{}",
     "sequence_parallel of blocks 0-3 splits rows over tp, which their mesh does not have\n"
     "  hint: leave it out, or give the mesh an axis tp"},
    {"parallel", "{mesh: dp4, layers: [{blocks: 0-3, mesh: row2 col2}]}", "gpt2", "{}",
     "the mesh of blocks 0-3 has an axis row\n"
     "  hint: its axes can be dp, fsdp and tp"},
    {"parallel", "{mesh: row2 col2, layers: [{blocks: 0-3, mesh: dp4}]}", "gpt2", "{}",
     "layers cannot have a mesh of their own beside the axis row\n"
     "  hint: axes of the plan's mesh can be dp, fsdp, tp and pp"},
    {"parallel", "{mesh: dp3 tp2, layers: [{blocks: 0-3, mesh: dp2 tp3}]}", "gpt2", "{}",
     "layers cut a stage into groups of 2 and of 3 neighbouring ranks\n"
     "  hint: sizes of such groups must divide each other, like 2, 4 and 8"},
    {"parallel",
     "{mesh: dp512, layers: [{blocks: 0, mesh: dp256 tp2}, {blocks: 1, mesh: dp128 tp4}, {blocks: 2, mesh: "
     "dp64 tp8}, {blocks: 3, mesh: dp32 tp16}, {blocks: 4, mesh: dp16 tp32}, {blocks: 5, mesh: dp8 tp64}, {blocks: 6, "
     "mesh: "
     "dp4 tp128}, {blocks: 7, mesh: dp2 tp256}]}",
     "gpt2", "{}",
     "layers cut the mesh into 9 axes\n"
     "  hint: at most 8: let meshes of layers have groups of equal sizes"},
    {"parallel", "{mesh: dp4, layers: [{blocks: 0-3, mesh: tp4, data: zero9}]}", "gpt2", "{}",
     "s:1:53: unknown value 'zero9'\n"
     "  {mesh: dp4, layers: [{blocks: 0-3, mesh: tp4, data: zero9}]}\n"
     "                                                      ^\n"
     "  hint: did you mean 'zero1'? known values: ddp, zero1, zero2, zero3"},
    {"parallel", "{mesh: dp4, layers: [{blocks: 0-3, mesh: dp2 fsdp2}]}", "gpt2", "{}",
     "the ranks of fsdp split nothing under `data: {kind: ddp}`\n"
     "  hint: kind can be zero1, zero2 or zero3; use dp for replicas that keep all"},
    {"parallel", "{mesh: dp2 tp4, layers: [{blocks: 0-3, mesh: tp8}]}", "gpt2", "{}",
     "tp 8 does not divide 4 attention heads\n"
     "  hint: tp can be 1, 2, 4"},
    {"parallel", "{mesh: dp2, layers: [{blocks: 0-3, sequence_parallel: true}]}", "gpt2", "{}",
     "sequence_parallel of blocks 0-3 splits rows over tp, which their mesh does not have\n"
     "  hint: leave it out, or give the mesh an axis tp"},
    {"parallel", "{mesh: tp2 dp2, sequence_parallel: true, layers: [{blocks: 0-3, mesh: tp4}]}", "gpt2", "{}",
     "sequence_parallel would cut rows into parts that other layers have in another order\n"
     "  hint: write tp last in each mesh: `dp2 tp2` and `tp4`, not `tp2 dp2` and `tp4`"},
    {"parallel", "{mesh: dp2 tp2, layers: [{blocks: 0-3, mesh: tp2 dp2}]}", "gpt2", "{batch: 6, microbatches: 3}",
     "batch 6 is not a multiple of 12, the microbatches of all replicas of all layers together\n"
     "  hint: batch can be 12"},
    {"parallel", "{mesh: dp2, layers: [{blocks: 0, mesh: tp2}]}", "t5-tiny", "{}",
     "t5-tiny is no single stack of blocks: its layers cannot have meshes of their own\n"
     "  hint: leave mesh and sequence_parallel of the layers out"},
    {"parallel", "{mesh: dp2}", "gpt2", "{copied_values: true}",
     "copied_values is for latent attention, and gpt2 has none\n"
     "  hint: leave it out"},
    {"parallel", "{mesh: dp2}", "gpt2", "{keep_narrow: true}",
     "keep_narrow without products in 8 bits\n"
     "  hint: set narrow to eight_bits"},
    {"single", "{}", "gpt2", "{narrow: eight_bits, keep_narrow: true, recompute: rotor, activation_budget: 1 MB}",
     "keep_narrow with a schedule of what is computed again\n"
     "  hint: set recompute to none, selective, full or whole"},
    {"parallel", "{mesh: dp2}", "gpt2", "{dtype: f32, optimizer: {widen_gradients: true}}",
     "widen_gradients copies gradients of 16 bits to f32 for adamw\n"
     "  hint: leave it out, or train in bf16 or f16 without wide_gradients"},
    {"zero-offload", "{}", "gpt2", "{dtype: bf16, optimizer: {widen_gradients: true}}",
     "the strategy `zero-offload` takes gradients to their update as they are\n"
     "  hint: leave out widen_gradients"},
};

TrainOptions options_of(const char* workload) {
  TrainOptions o;
  o.batch = 16;
  o.microbatches = 4;
  o.sequence = 16;
  read_options(parse_yaml(workload, "workload"), o);
  return o;
}

}  // namespace

TEST_CASE("what cannot be split is refused with what can") {
  for (const Refusal& r : kRefusals) {
    INFO(r.strategy << " " << r.options << " " << r.model << " " << r.workload);
    const std::string text = user_error([&] {
      const auto strategy = find_strategy(r.strategy).make(parse_yaml(r.options, "s"));
      strategy->train_step(named_model(r.model), options_of(r.workload), nullptr);
    });
    CHECK(text == r.message);
  }
}
