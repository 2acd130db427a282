// SPDX-License-Identifier: Apache-2.0
// Layers that split the ranks of a stage in ways of their own compute what one device computes: losses, gradients and
// weights after two steps in float64. A new way is a row of the table.
#include <catch2/catch.hpp>

#include "tests/composition_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::int64_t kMicrobatches = 2;  // where a row says nothing else
constexpr Composition kCases[] = {
    // The plan's mesh with layers of another: replicas to shared matrices and back.
    {"gpt2", "{mesh: dp2, layers: [{blocks: 2-4, mesh: tp2}]}"},
    {"gpt2", "{mesh: tp2, layers: [{blocks: 0-3, mesh: dp2}]}", "{dropout: 0.1}"},
    {"llama", "{mesh: dp4, layers: [{blocks: 0-3, mesh: dp2 tp2}, {blocks: 4-7, mesh: tp4}]}", "{dropout: 0.2}"},
    {"llama", "{mesh: tp4, layers: [{blocks: 0-2, mesh: dp4}, {blocks: '3,5', mesh: dp2 tp2}]}", "{recompute: full}"},
    {"tied", "{mesh: dp2 tp2, layers: [{blocks: '0,2,4,6', mesh: tp4}, {blocks: '1,7', mesh: dp4}]}", "{dropout: 0.1}"},
    {"bert", "{mesh: dp4, layers: [{blocks: 1-2, mesh: dp2 tp2}]}", "{dropout: 0.1, recompute: selective}"},
    // Ranks that are not neighbours share matrices: rows change their place, and their order within a rank.
    {"gpt2", "{mesh: dp2 tp2, layers: [{blocks: 2-5, mesh: tp2 dp2}]}", "{dropout: 0.1}"},
    {"llama", "{mesh: tp2 dp2, layers: [{blocks: 0-1, mesh: tp4}, {blocks: 2-3, mesh: dp4}]}"},
    {"llama", "{mesh: tp2 dp2 , layers: [{blocks: 0-3, mesh: dp2 tp2}, {blocks: 4-5, mesh: tp4}]}", "{dropout: 0.3}"},
    {"gpt2",
     "{mesh: dp8, layers: [{blocks: 0-1, mesh: tp2 dp4}, {blocks: 2-3, mesh: dp4 tp2}, {blocks: 4-5, mesh: tp2 dp2 "
     "fsdp2, data: zero3}, {blocks: 6-7, mesh: tp4 dp2}]}",
     "{batch: 16, dropout: 0.1}"},
    {"gpt2", "{mesh: dp2 tp4, layers: [{blocks: 3-4, mesh: tp4 dp2}, {blocks: 5-6, mesh: dp4 tp2}]}", "{batch: 16}"},
    // Replicas that keep all beside such that keep a part.
    {"gpt2", "{mesh: dp4, layers: [{blocks: 0-3, data: zero3}]}"},
    {"gpt2",
     "{mesh: dp4, data: {kind: zero3, bucket: 0}, layers: [{blocks: 2-3, data: ddp}, {blocks: 5-6, data: zero2}]}"},
    {"llama",
     "{mesh: dp2 tp2, layers: [{blocks: 0-3, mesh: fsdp4, data: zero3}, {blocks: 4-5, mesh: fsdp2 tp2, data: zero1}]}",
     "{recompute: full, dropout: 0.1}"},
    {"llama",
     "{mesh: fsdp2 dp2, data: {kind: zero2}, layers: [{blocks: 1-2, mesh: dp2 fsdp2, data: zero3}, {blocks: 5-7, mesh: "
     "fsdp2 tp2}]}",
     "{optimizer: {kind: sgd}}"},
    {"mixtral", "{mesh: dp4, data: {kind: zero1}, layers: [{blocks: 1-2, mesh: dp2 tp2, data: zero3}]}",
     "{dropout: 0.1}"},
    {"mixtral", "{mesh: dp2 tp2, layers: [{blocks: 1-2, mesh: dp4, data: zero2}]}",
     "{batch: 16, capacity_factor: 1.25, capacity_groups: 4}"},
    {"deepseek-tiny", "{mesh: tp2, layers: [{blocks: 1, mesh: dp2, data: zero3}]}", "{recompute: full}"},
    // Rows between blocks split over tp: every mesh has the same ones then.
    {"llama", "{mesh: dp2 tp2, sequence_parallel: true, layers: [{blocks: 0-3, mesh: tp4}, {blocks: 4-5, mesh: dp4}]}",
     "{dropout: 0.1}"},
    {"gpt2", "{mesh: dp4, layers: [{blocks: 1-3, mesh: tp4, sequence_parallel: true}, {blocks: 4-6, mesh: dp2 tp2}]}",
     "{dropout: 0.1}"},
    {"gpt2", "{mesh: tp4, layers: [{blocks: 1-3, sequence_parallel: true}]}", "{recompute: full, dropout: 0.1}"},
    {"bert", "{mesh: tp4, sequence_parallel: true, layers: [{blocks: 2, mesh: dp2 tp2, sequence_parallel: false}]}"},
    // What is kept of the forward pass, on any mesh.
    {"gpt2", "{mesh: dp2 tp2, layers: [{blocks: 0-2, recompute: full}, {blocks: 4, recompute: selective}]}",
     "{dropout: 0.1}"},
    {"gpt2", "{mesh: row2 col2, layers: [{blocks: 0-2, recompute: full}]}"},
    {"llama", "{mesh: cp2, layers: [{blocks: 0-5, recompute: full}]}", "{recompute: selective}"},
    {"mixtral", "{mesh: ep2 dp2, layers: [{blocks: 1-2, recompute: full, data: zero3}]}"},
    {"t5-tiny", "{mesh: dp2, layers: [{blocks: 0-1, recompute: full, data: zero2}]}", "{target_sequence: 5}"},
    {"vit-tiny", "{mesh: dp2, layers: [{blocks: 0, mesh: tp2, recompute: full}]}", "{batch: 4}"},
    // Stages: boundaries at which the mesh changes, uneven ones, stages without blocks.
    {"gpt2", "{mesh: pp2 dp2, layers: [{blocks: 0-3, mesh: tp2}]}", "{dropout: 0.1}"},
    {"gpt2", "{mesh: pp2 tp2, stage_layers: [3, 5], layers: [{blocks: 3-5, mesh: dp2, data: zero3}]}",
     "{recompute: full}"},
    {"llama",
     "{mesh: pp2 dp2 tp2, layers: [{blocks: 0-2, mesh: dp4}, {blocks: 3-4, mesh: tp4, sequence_parallel: true}, "
     "{blocks: 5, mesh: tp2 dp2}]}",
     "{dropout: 0.1}"},
    {"llama", "{mesh: dp2 pp2 tp2, layers: [{blocks: 2-4, mesh: dp4, data: zero2}, {blocks: 5-6, mesh: tp4}]}",
     "{batch: 16, microbatches: 4}"},
    {"tied", "{mesh: tp2 pp3 dp2, stage_layers: [1, 5, 2], schedule: zb-h1, layers: [{blocks: 1-3, mesh: dp4}]}",
     "{batch: 12, microbatches: 3}"},
    {"tied", "{mesh: pp4 dp2, stage_layers: [0, 4, 4, 0], layers: [{blocks: 0-3, mesh: tp2}]}",
     "{batch: 12, microbatches: 6, dropout: 0.1}"},
    {"gpt2", "{mesh: pp4 tp2, stage_layers: [2, 0, 6, 0], schedule: gpipe, layers: [{blocks: 1-4, mesh: dp2}]}"},
    {"gpt2",
     "{mesh: pp2 dp2 tp2, schedule: interleaved, chunks: 2, layers: [{blocks: 1-2, mesh: dp4}, {blocks: 6, mesh: "
     "tp4}]}"},
    {"gpt2",
     "{mesh: pp2 dp2 tp2, schedule: zb-v, layers: [{blocks: 1-2, mesh: dp4, data: zero1}, {blocks: 3, mesh: tp4}]}"},
    {"llama", "{mesh: pp2 dp2 tp2, schedule: chimera, layers: [{blocks: 2-5, mesh: dp4, data: zero2}]}"},
    {"llama",
     "{mesh: pp2 tp2, schedule: dualpipe, data: {kind: zero1}, layers: [{blocks: 1-6, mesh: dp2, recompute: full}]}",
     "{microbatches: 4}"},
    {"mixtral", "{mesh: pp2 dp2 tp2, data: {kind: zero3}, layers: [{blocks: 0, mesh: dp4}, {blocks: 3, mesh: tp4}]}",
     "{dropout: 0.1}"},
    // The plans that Galvatron finds for BERT-Huge on 8 devices, in small: 1-2-4 with replicas, then with parts of
    // them;
    // 2-2-2, 2-1-4 and 2-1-4 in parts; with recomputation as in Galvatron-BMW.
    {"gpt2", "{mesh: dp4 tp2, layers: [{blocks: 4-7, mesh: fsdp4 tp2, data: zero3}]}"},
    {"gpt2",
     "{mesh: pp2 tp2 dp2, layers: [{blocks: '1-2,5-6', mesh: dp4}, {blocks: '3,7', mesh: fsdp4, data: zero3}]}"},
    {"bert", "{mesh: pp2 dp4, layers: [{blocks: '0,2', recompute: full, data: zero2}]}"},
};

/// Feed-forward layers that split the ranks otherwise than attention before them.
constexpr Composition kHalves[] = {
    {"gpt2", "{mesh: dp4, layers: [{blocks: 0-7, ffn_mesh: tp4}]}", "{dropout: 0.1}"},
    {"gpt2", "{mesh: tp4, layers: [{blocks: 0-5, ffn_mesh: dp4}, {blocks: 6-7, mesh: dp2 tp2, ffn_mesh: tp2 dp2}]}"},
    {"llama", "{mesh: dp2 tp2, layers: [{blocks: 0-3, mesh: tp4, ffn_mesh: dp4}, {blocks: 5, ffn_mesh: tp4}]}",
     "{recompute: full, dropout: 0.1}"},
    {"llama", "{mesh: dp2 tp2, layers: [{blocks: 0-7, mesh: dp4, ffn_mesh: tp4, ffn_sequence_parallel: true}]}",
     "{dropout: 0.2}"},
    {"gpt2", "{mesh: tp4, sequence_parallel: true, layers: [{blocks: 1-6, ffn_sequence_parallel: false}]}",
     "{recompute: selective}"},
    {"tied",
     "{mesh: dp4, data: {kind: zero1}, layers: [{blocks: 1-3, ffn_mesh: dp2 tp2}, {blocks: 4-6, mesh: tp4, ffn_mesh: "
     "fsdp4, data: zero3}]}",
     "{dropout: 0.1}"},
    {"bert", "{mesh: dp4, layers: [{blocks: 0-3, mesh: tp4, ffn_mesh: dp2 tp2, data: zero2}]}", "{dropout: 0.1}"},
    {"gpt2", "{mesh: pp2 dp2 tp2, layers: [{blocks: 2-5, mesh: dp4, ffn_mesh: tp4}]}",
     "{recompute: full, dropout: 0.1}"},
    {"gpt2", "{mesh: dp2 tp2, layers: [{blocks: 0-7, mesh: tp4, ffn_mesh: dp4}]}",
     "{recompute: rotor, activation_budget: 200 KiB}"},
};

/// The largest difference to one device.
double worst_of(std::span<const Composition> cases) {
  References references;
  double worst = 0;
  for (const Composition& c : cases) {
    INFO(c.model << " " << c.strategy << " " << c.options);
    const TrainOptions o = options_of(c, Precision::F64, kMicrobatches);
    const Model model = named_model(c.model);
    double difference = 1;
    CHECK_NOTHROW(difference = worst_difference(train(model, o, *parallel(c.strategy)), references.of(c, o)));
    CHECK(difference < 1e-9);
    worst = std::max(worst, difference);
  }
  return worst;
}

}  // namespace

TEST_CASE("layers with meshes of their own compute what one device computes", "[parallel]") {
  WARN(std::size(kCases) << " plans, largest relative difference " << worst_of(kCases));
}

TEST_CASE("feed-forward layers with meshes of their own compute what one device computes", "[parallel]") {
  WARN(std::size(kHalves) << " plans, largest relative difference " << worst_of(kHalves));
}

TEST_CASE("ranks that cannot share heads share feed-forward layers", "[parallel]") {
  const Model model = model_from_config(
      parse_yaml("{model_type: gpt2, n_embd: 24, n_layer: 3, n_head: 3, n_positions: 16, vocab_size: 32}", "test"),
      "test");
  const TrainOptions o = options_of({"gpt2", ""}, Precision::F64, kMicrobatches);
  const Trained plain = train(model, o, *single());
  for (const char* strategy : {"{mesh: dp4, layers: [{blocks: 0-2, ffn_mesh: tp4}]}",
                               "{mesh: dp4, layers: [{blocks: 0-1, ffn_mesh: dp2 tp2, ffn_sequence_parallel: true}]}"})
    CHECK(worst_difference(train(model, o, *parallel(strategy)), plain) < 1e-9);
  CHECK_THROWS_AS(parallel("{mesh: dp4, layers: [{blocks: 0-2, mesh: tp4}]}")->train_step(model, o, nullptr),
                  UserError);
}

/// Sums in another order differ by the rounding of float32, 6e-8 per operation.
TEST_CASE("gradients of layers with meshes of their own agree in float32", "[parallel]") {
  for (std::size_t i = 0; i < std::size(kCases); i += std::size(kCases) / 8) {
    const Composition& c = kCases[i];
    INFO(c.model << " " << c.strategy << " " << c.options);
    const TrainOptions o = options_of(c, Precision::F32, kMicrobatches);
    const Model model = named_model(c.model);
    CHECK(worst_difference(train(model, o, *parallel(c.strategy)).gradients, train(model, o, *single()).gradients) <
          1e-4);
  }
}
