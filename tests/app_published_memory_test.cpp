// SPDX-License-Identifier: Apache-2.0
// Published peaks of memory: what they are made of, and which device they are of.
#include <catch2/catch.hpp>

#include "sim/app/accuracy/memory_fit.hpp"
#include "sim/app/accuracy/step_model.hpp"
#include "tests/published_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("what memory is made of is told by stage", "[published]") {
  // Two stages of eight layers with a hidden size of 2048: 12·2048² + 13·2048 parameters a layer, a table of 51200 rows
  // in front, tied to the one behind; tp splits both. ZeRO-1 over two replicas.
  const PublishedStep s =
      step("r1,GPT,16,2048,16,8192,gelu,51200,1024,A100-80GB-SXM4,8,8,,Megatron-LM,fp16,2,2,,2,ZeRO-1,full,2,32,1");
  const std::vector<MemoryShape> stages = memory_shapes(s, {.seconds = 1, .first = {9e9, 5e9}, .last = {8e9, 6e9}});
  REQUIRE(stages.size() == 2);
  const double layers = 8 * (12 * 2048.0 * 2048 + 13 * 2048), table = 51200.0 * 2048;
  CHECK(stages[0].parameters == Approx((layers + table + 1024 * 2048) / 2));  // and positions
  CHECK(stages[1].parameters == Approx((layers + table + 2 * 2048) / 2));     // and the last norm
  CHECK(stages[0].states == Approx(stages[0].parameters / 2));
  CHECK(stages[0].passing == Approx(4e9));
  // Over four of eight replicas: neighbours share, and a rank has a quarter of a stage's states.
  const PublishedStep some = step(
      "r1,GPT,16,2048,16,8192,gelu,51200,1024,A100-80GB-SXM4,16,8,,InternEvo,bf16,2,1,,8,ZeRO-1 over 4 "
      "ranks,full,2,32,1");
  CHECK(some.mesh.text(1) == "dp2 fsdp4 tp2");
  const std::vector<MemoryShape> shared = memory_shapes(some, {.seconds = 1, .first = {9e9, 5e9}, .last = {8e9, 6e9}});
  CHECK(shared[0].states == Approx(shared[0].parameters / 4));
  // The fuller stage counts, with a share of what comes and goes.
  SoftwareProfile p;
  p.memory_fragments = 0.5;
  CHECK(needed_memory(p, stages) == Approx(11e9));
  CHECK(peak_memory(p, stages, 80e9) == Approx(11e9));
  // What an allocator keeps stays as long as there is room.
  std::vector<MemoryShape> cached = stages;
  for (MemoryShape& c : cached) c.cached = 2e9;
  CHECK(peak_memory(p, cached, 80e9) == Approx(13e9));
  CHECK(peak_memory(p, cached, 12e9) == Approx(12e9));
  CHECK(peak_memory(p, cached, 10e9) == Approx(11e9));
}

TEST_CASE("InternEvo's ZeRO-1 leaves blocks behind that its FSDP does not", "[published]") {
  const auto cached = [](const std::string& shard) {
    return step("r1,InternLM-7B,32,4096,32,11008,swiglu,103168,2048,A800-80GB,4,8,,InternEvo,bf16,4,1,,1," + shard +
                ",full,1,4,1")
        .cached_per_state;
  };
  CHECK(cached("ZeRO-1 over all dp ranks") == 2 + 4);  // a flat copy in 16 bits, and f32 ones for the norm
  CHECK(cached("FSDP over all dp ranks") == 0);
}

TEST_CASE("BigScience's numbers of memory on V100 are those of its first stage", "[published]") {
  const auto row = [](const std::string& gpu) {
    return step("r1,GPT-1.3B,24,2048,16,8192,gelu,50257,2048," + gpu +
                ",8,4,,Megatron-DeepSpeed (ZeRO-1),fp16,1,2,,4,ZeRO-1,full,8,512,29");
  };
  const std::vector<MemoryShape> stages{{.live = 5e9}, {.live = 7e9}};
  CHECK(watched_shapes(row("V100-32GB-SXM2"), stages).size() == 1);
  CHECK(watched_shapes(row("V100-32GB-SXM2"), stages).front().live == 5e9);
  CHECK(watched_shapes(row("A100-80GB-SXM4"), stages).size() == 2);
  CHECK(row("V100-32GB-SXM2").train.loss == LossKind::MegatronCopied);
}

TEST_CASE("an update of weights in 8 bits copies gradients and weights of what the rank updates", "[published]") {
  const auto predicted = [](const PublishedStep& s) {
    const Machine machine = wiring().machine(s.cluster);
    return StepModel{s}.predict(machine);
  };
  const std::string row = "r1,GPT,4,1024,16,4096,gelu (2 matrices),51200,1024,H100,2,8,,";
  const PublishedStep eight = step(row + "Megatron-Bridge,FP8-CS,1,1,,2,,,1,4,1");
  CHECK(eight.train.keep_narrow);
  // Of n parameters, half on each of two ranks: gradients in f32 and weights in 16 bits; moments in f32.
  const double n = double(eight.network.model(4).parameter_count());
  const StageBytes s = predicted(eight).last;
  CHECK(s.update - s.kept == Approx((4 + 2) * n / 2).epsilon(0.001));
  CHECK(s.moments == Approx(8 * n / 2).epsilon(0.001));
  CHECK(predicted(eight).at_first().last.peak == s.peak - s.moments);
  const StageBytes wide = predicted(step(row + "Megatron-Bridge,BF16,1,1,,2,,,1,4,1")).last;
  CHECK(wide.update - wide.kept == Approx(4 * n / 2).epsilon(0.001));
  const StageBytes blocks = predicted(step(row + "Megatron-Bridge,FP8-MX,1,1,,2,,,1,4,1")).last;
  CHECK(blocks.update - blocks.kept == Approx(4 * n / 2).epsilon(0.001));
  const StageBytes other = predicted(step(row + "llm-foundry,BF16,1,1,,2,,,1,4,1")).last;
  CHECK(other.update == other.kept);
}

TEST_CASE("a peak that does not say of which steps is Megatron-Bridge's print behind the first", "[published]") {
  const auto measured = [](const std::string& software, const std::string& notes) {
    const CsvTable t{"row_id,software,notes,peak_mem_gb\nr1," + software + "," + notes + ",59\n", "rows.csv"};
    return read_measured_step(t.row(0), {}).first_step;
  };
  CHECK(measured("Megatron-Bridge PR 3107", "fits"));
  CHECK_FALSE(measured("Megatron-Bridge", "iterations 41-50"));
  CHECK_FALSE(measured("Megatron-LM 6791bfac", ""));
}
