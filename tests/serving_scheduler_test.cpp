// SPDX-License-Identifier: Apache-2.0
// Blocks of keys and values, and what each scheduler does with sequences.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "sim/base/yaml.hpp"
#include "sim/model/load.hpp"
#include "sim/program/serving/serving.hpp"
#include "tests/scheduler_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("a token's keys and values take the heads of a rank, and latent attention one vector on each", "[serving]") {
  const Model llama = load_model(ORRERY_SOURCE_DIR "/scenarios/models/llama-3-8b.json");
  // 32 layers · 8 heads · (128 + 128) · 2 B
  CHECK(kv_bytes_per_token(llama, DType::BF16, 1) == Bytes{131072});
  CHECK(kv_bytes_per_token(llama, DType::F8E4M3, 1) == Bytes{65536});
  CHECK(kv_bytes_per_token(llama, DType::BF16, 4) == Bytes{32768});
  CHECK(kv_bytes_per_token(llama, DType::BF16, 16) == Bytes{16384});  // each of 16 ranks holds one head whole
  const Model v3 = load_model(ORRERY_SOURCE_DIR "/scenarios/models/deepseek-v3.json");
  // 61 layers · (512 + 64) · 2 B, whatever the ranks
  CHECK(kv_bytes_per_token(v3, DType::BF16, 8) == Bytes{61 * 576 * 2});
}

TEST_CASE("layers with a window keep what a row may see", "[serving]") {
  const auto types = [](std::string_view full, std::string_view windowed) {
    const std::string text = fmt::format(
        "{{model_type: qwen3, num_hidden_layers: 6, hidden_size: 64, num_attention_heads: 8, "
        "num_key_value_heads: 2, head_dim: 8, vocab_size: 10, intermediate_size: 8, "
        "use_sliding_window: true, sliding_window: 128, layer_types: [{}, {}]}}",
        full, windowed);
    return model_from_config(parse_yaml(text, "windows"), "windows");
  };
  const std::string_view full = "full_attention, full_attention, full_attention",
                         window = "sliding_attention, sliding_attention, sliding_attention";
  // Of either kind 3 layers · 2 heads · (8 + 8).
  const std::vector<KvLayers> half = kv_layers(types(full, window), 1);
  REQUIRE(half.size() == 2);
  CHECK(half[0].window == 0);
  CHECK(half[0].numbers == 96);
  CHECK(half[1].window == 128);
  CHECK(half[1].numbers == 96);
  CHECK(kv_bytes_per_token(types(full, window), DType::BF16, 1) == Bytes{192});
  // 8192 tokens of the layers that see all, 128 of the others.
  CHECK(kv_numbers(half, 8192) == 96 * (8192 + 128));
  CHECK(kv_numbers(half, 100) == 96 * 2 * 100);
  // Of blocks of 16 tokens a window of 128 spans 9 where it begins within one: 15 + 7·16 + 1.
  CHECK(half[1].blocks(8192, 16) == 9);
  CHECK(half[1].blocks(100, 16) == 7);
  const KvBlocks mixed{{.device = 1, .layers = half}};
  CHECK(mixed.blocks_for(8192) == 512 + 9);
  CHECK(mixed.blocks_for(16) == 2);
  // Two layers that see all and four that do not: 9 blocks of these are as large as 18.
  const KvBlocks few{
      {.device = 1, .layers = kv_layers(types("full_attention, full_attention, sliding_attention", window), 1)}};
  CHECK(few.blocks_for(8192) == 512 + 18);
  // One and five: 9 · 5 blocks. All of them: a block holds all six layers, and no more than 9 are kept.
  const KvBlocks one{
      {.device = 1, .layers = kv_layers(types("full_attention, sliding_attention, sliding_attention", window), 1)}};
  CHECK(one.blocks_for(8192) == 512 + 45);
  const std::vector<KvLayers> all = kv_layers(types(window, window), 1);
  REQUIRE(all.size() == 1);
  CHECK(KvBlocks{{.device = 1, .layers = all}}.blocks_for(8192) == 9);
  CHECK(kv_bytes_per_token(types(window, window), DType::BF16, 1) == Bytes{384});
}

TEST_CASE("a window takes blocks until it is full, and moves and goes with its sequence", "[serving]") {
  // Windows of 5 tokens in blocks of 4: 1 + ⌈4/4⌉ blocks at most.
  const KvBlocks::Sizes sizes{
      .device = 8, .host = 8, .tokens = 4, .layers = {{.numbers = 1, .window = 0}, {.numbers = 1, .window = 5}}};
  KvBlocks kv{sizes};
  BlockTable a, b;
  REQUIRE(kv.grow(a, 4));
  CHECK(kv.held() == 1 + 1);
  REQUIRE(kv.grow(a, 16));
  CHECK(a.blocks.size() == 4);
  CHECK(kv.held() == 4 + 2);
  CHECK_FALSE(kv.grow(b, 5));  // two of each
  CHECK(kv.held() == 6);
  CHECK(kv.swap_out(a).size() == 6);
  CHECK(kv.held() == 0);
  CHECK(kv.host_available() == 2);
  CHECK(kv.swap_in(a).size() == 6);
  CHECK(kv.host_available() == 8);
  kv.release(a);
  CHECK(kv.available() == 8);
  // 9 + 3 tokens would be 3 + 2 blocks twice: the second request waits for the first.
  Scheduler s{replica("orca"), sizes};
  CHECK(s.can_hold(request(0, 9, 15)));
  CHECK_FALSE(s.can_hold(request(0, 9, 16)));
  s.submit(request(0, 9, 3));
  s.submit(request(1, 9, 3));
  s.close();
  CHECK(steps_of(s) == std::vector<std::string>{"0:9", "0:1", "0:1", "1:9", "1:1", "1:1"});
  CHECK(s.blocks().held() == 0);
}

TEST_CASE("blocks with equal contents are shared, and found until they are needed", "[serving]") {
  KvBlocks kv{{.device = 4, .host = 0, .tokens = 4}};
  std::vector<std::int32_t> tokens(9);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto hashes = block_hashes(tokens, 4);
  REQUIRE(hashes.size() == 2);
  BlockTable a, b;
  REQUIRE(kv.grow(a, 9));
  kv.publish(a, hashes);
  CHECK(kv.available() == 1);
  CHECK(kv.find(hashes).blocks == 2);
  kv.share(b, hashes, 2);
  CHECK(kv.available() == 1);  // nothing new was taken
  CHECK(b.blocks == std::vector<std::int32_t>{a.blocks[0], a.blocks[1]});
  kv.release(a);
  CHECK(kv.available() == 2);  // b holds two
  kv.release(b);
  CHECK(kv.available() == 4);
  CHECK(kv.find(hashes).blocks == 2);
  CHECK(kv.find(hashes).idle == 2);
  BlockTable c;
  REQUIRE(kv.grow(c, 12));  // two that hold nothing, then the one that is findable and was given back first
  CHECK(kv.find(hashes).blocks == 1);
  CHECK_FALSE(kv.grow(c, 17));
  CHECK(c.blocks.size() == 3);
  tokens[0] = 7;
  CHECK(block_hashes(tokens, 4)[1] != hashes[1]);  // the hash of a block is of all before it too
}

TEST_CASE("a table that is swapped out and in again has blocks of its own", "[serving]") {
  KvBlocks kv{{.device = 3, .host = 2, .tokens = 4}};
  BlockTable a, b;
  REQUIRE(kv.grow(a, 8));
  const auto out = kv.swap_out(a);
  REQUIRE(out.size() == 2);
  CHECK(a.on_host);
  CHECK(kv.available() == 3);
  CHECK(kv.host_available() == 0);
  REQUIRE(kv.grow(b, 8));
  CHECK(kv.swap_in(a).empty());  // one block is not enough
  kv.release(b);
  const auto in = kv.swap_in(a);
  REQUIRE(in.size() == 2);
  CHECK(in[0].from == out[0].to);
  CHECK(kv.host_available() == 2);
}

TEST_CASE("each scheduler takes prompts and tokens in its own way", "[serving]") {
  const KvBlocks::Sizes room{.device = 64, .host = 0, .tokens = 4};
  const auto steps = [&](std::string_view name) {
    Scheduler s{replica(name, 2, 8), room};
    s.submit(request(0, 6, 3));
    s.submit(request(1, 5, 2));
    s.submit(request(2, 3, 1));
    s.close();
    return steps_of(s);
  };
  using Steps = std::vector<std::string>;
  // 8 tokens a step: request 1 gets what is left, then goes on with 3 beside the token of request 0.
  CHECK(steps("vllm_v1") == Steps{"0:6 1:2", "0:1 1:3", "0:1 1:1", "2:3"});
  CHECK(steps("sarathi") == Steps{"0:6 1:2", "0:1 1:3", "0:1 1:1", "2:3"});
  // Whole prompts alone, first.
  CHECK(steps("vllm_v0") == Steps{"0:6", "1:5", "0:1 1:1", "2:3", "0:1"});
  CHECK(steps("orca") == Steps{"0:6", "0:1 1:5", "0:1 1:1", "2:3"});
  // A batch of one, as two whole prompts do not fit into a step; nobody joins.
  CHECK(steps("fastertransformer") == Steps{"0:6", "0:1", "0:1", "1:5 2:3", "1:1"});
  CHECK(steps("static") == Steps{"0:6", "0:1", "0:1", "1:5 2:3", "1:1"});
}

TEST_CASE("a server that looks for requests now and then lets them wait while others decode", "[serving]") {
  ReplicaOptions o = replica("sglang");
  o.notice_every = 3;
  Scheduler s{o, {.device = 64, .host = 0, .tokens = 4}};
  const auto step = [&] {
    const StepBatch batch = s.begin();
    s.end(batch);
    return rows_of(batch);
  };
  s.submit(request(0, 6, 20));
  CHECK(step() == "0:6");  // nothing runs
  s.submit(request(1, 5, 20));
  CHECK(step() == "1:5");  // behind a prompt
  CHECK(step() == "0:1 1:1");
  s.submit(request(2, 3, 20));
  CHECK(step() == "0:1 1:1");  // one step since it looked, two …
  CHECK(step() == "0:1 1:1");
  CHECK(step() == "2:3");
  CHECK(step() == "0:1 1:1 2:1");
  CHECK(s.waiting() == 0);
}

TEST_CASE("who decodes goes before chunks of older prompts under sarathi alone", "[serving]") {
  const KvBlocks::Sizes room{.device = 64, .host = 0, .tokens = 4};
  const auto third = [&](std::string_view name) {
    Scheduler s{replica(name, 4, 4), room};
    s.submit(request(0, 2, 9));
    s.submit(request(1, 12, 2));
    s.end(s.begin());
    auto moved = s.begin();
    s.end(moved);
    return rows_of(moved);
  };
  CHECK(third("vllm_v1") == "0:1 1:3");
  Scheduler s{replica("sarathi", 4, 4), room};
  s.submit(request(0, 7, 9));
  s.submit(request(1, 2, 9));
  CHECK(rows_of(s.begin()) == "0:4");
}

TEST_CASE("who comes during a step that was decided ahead joins the one behind the next", "[serving]") {
  const auto steps = [](std::string_view name) {
    Scheduler s{replica(name, 2, 8), {.device = 64, .host = 0, .tokens = 4}};
    std::vector<std::string> out;
    const auto next = [&](bool is_last) {
      const StepBatch b = s.begin();
      out.push_back(rows_of(b));
      if (!is_last) s.end(b);
    };
    s.submit(request(0, 6, 3));
    const StepBatch first = s.begin();
    s.submit(request(1, 5, 2));  // while the first step runs
    CHECK(s.waiting() == 1);
    s.end(first);
    next(false);
    next(true);
    return out;
  };
  using Steps = std::vector<std::string>;
  CHECK(steps("vllm_v1") == Steps{"0:1 1:5", "0:1 1:1"});
  CHECK(steps("vllm_v1_async") == Steps{"0:1", "0:1 1:5"});
  // Nobody runs: there is no step to be ahead of.
  Scheduler idle{replica("vllm_v1_async", 2, 8), {.device = 64, .host = 0, .tokens = 4}};
  idle.submit(request(0, 6, 1));
  const StepBatch only = idle.begin();
  idle.submit(request(1, 5, 1));
  CHECK(idle.end(only).size() == 1);
  CHECK(rows_of(idle.begin()) == "1:5");
}

TEST_CASE("static batches wait until they are full and compute for who is done", "[serving]") {
  Scheduler s{replica("static", 2), {.device = 64, .host = 0, .tokens = 4}};
  s.submit(request(0, 4, 1));
  CHECK(s.begin().is_empty());
  s.submit(request(1, 4, 3));
  StepBatch first = s.begin();
  CHECK(first.parts.size() == 2);
  CHECK(s.end(first).empty());  // request 0 is done, but not given back
  const StepBatch second = s.begin();
  CHECK(second.parts.size() == 1);
  CHECK(second.shape.rows == 2);
  s.end(second);
  CHECK(s.end(s.begin()).size() == 2);
}

TEST_CASE("without room the youngest gives its blocks back, and is computed again", "[serving]") {
  // Three blocks of 4: two sequences of 4 + 5 tokens need three blocks each in the end.
  ReplicaOptions o = replica("vllm_v1");
  o.preemption = GENERATE(Preemption::Recompute, Preemption::Swap);
  Scheduler s{o, {.device = 4, .host = 4, .tokens = 4}};
  s.submit(request(0, 4, 6));
  s.submit(request(1, 4, 6));
  s.close();
  std::vector<std::int64_t> done;
  std::int64_t computed = 0;
  for (StepBatch b = s.begin(); !b.is_empty(); b = s.begin()) {
    CHECK(s.blocks().held() <= 4);
    computed += b.shape.rows;
    for (const auto& d : s.end(b)) done.push_back(d->request.id);
  }
  CHECK(done == std::vector<std::int64_t>{0, 1});
  CHECK(s.preemptions() > 0);
  CHECK(s.load() == 0);
  CHECK(s.blocks().held() == 0);
  // Each computes 4 + 6 − 1 rows; what was thrown away comes on top.
  if (o.preemption == Preemption::Swap)
    CHECK(computed == 18);
  else
    CHECK(computed > 18);
}

TEST_CASE("prompts of a group compute what they share once", "[serving]") {
  ReplicaOptions o = replica("vllm_v1", 8, 64);
  o.prefix_sharing = GENERATE(true, false);
  Scheduler s{o, {.device = 64, .host = 0, .tokens = 4, .sharing = o.prefix_sharing}};
  Request a = request(0, 14, 1), b = request(1, 14, 1);
  a.group = b.group = 3;
  a.shared = b.shared = 10;
  s.submit(a);
  s.end(s.begin());
  s.submit(b);
  // 10 shared tokens are two full blocks.
  CHECK(s.begin().shape.rows == (o.prefix_sharing ? 14 - 8 : 14));
}

TEST_CASE("unknown schedulers are refused with those there are", "[serving]") {
  CHECK(user_error([] { find_scheduler("orcas"); }).find("did you mean 'orca'") != std::string::npos);
}
