// SPDX-License-Identifier: Apache-2.0
// Published training steps: what a row becomes, and a long step from short ones.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <cmath>

#include "sim/app/accuracy/server_defaults.hpp"
#include "sim/app/accuracy/serving_rows.hpp"
#include "sim/app/accuracy/step_model.hpp"
#include "tests/published_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// The whole step, op by op.
PredictedStep simulated(const PublishedStep& s, const Machine& machine) {
  ParallelOptions parallel = s.parallel;
  parallel.mesh = s.mesh.text(s.mesh.stages);
  const Plan plan = lower_train_step(s.network.model(s.network.layers), s.train, parallel, nullptr);
  Engine engine{*machine.cost, *machine.resources, {.record = Record::Totals}};
  PredictedStep out{.seconds = double(engine.execute(plan, {}).end_ps) * 1e-12};
  for (const Peak& p : engine.take().peaks) out.last.peak = std::max(out.last.peak, double(p.bytes));
  return out;
}

}  // namespace

TEST_CASE("a row becomes a mesh, a batch and a cluster", "[published]") {
  const PublishedStep s = step(
      "r1,GPT-18B,40,6144,48,24576,gelu (2 matrices),51200,2048,A100-80GB-SXM4,256,8,8 x 200 Gb/s InfiniBand per "
      "node,Megatron-LM (April 2021),fp16,8,2,,16,,full,4,1024,9.4");
  CHECK(s.mesh.text(s.mesh.stages) == "pp2 dp16 tp8");
  CHECK(s.train.batch == 1024);
  CHECK(s.train.microbatches == 16);
  CHECK(s.train.stored_scores);
  CHECK(s.train.recompute == Recompute::Full);
  CHECK_FALSE(s.parallel.data.overlap);
  CHECK(s.profile == "megatron_2021");
  CHECK(s.cluster.num_ranks() == 256);
  CHECK(s.cluster.nic->bandwidth.base() == Approx(25e9));
}

TEST_CASE("InternEvo's ranks own parameters under ZeRO-1, and its four cards are eight channels", "[published]") {
  const auto row = [](const std::string& shard) {
    return step(
        "r1,InternLM-7B,32,4096,32,11008,swiglu,103168,2048,A100-80GB-SXM4,16,8,4 x 100 Gb/s RoCE per "
        "node,InternEvo,bf16,1,1,,16," +
        shard + ",none,2,128,4.26");
  };
  const PublishedStep own = row("ZeRO-1 over all data-parallel ranks"), split = row("FSDP over all dp ranks");
  CHECK(own.parallel.data.owners);
  CHECK(own.parallel.data.bucket == 2 * 512 * 1024 * 1024);
  CHECK(own.cached_per_state == 4);  // the flat gradient in 16 bits is in the plan
  CHECK_FALSE(split.parallel.data.owners);
  CHECK(split.parallel.data.bucket == 0);
  CHECK(own.cluster.nic->fabric == "roce_100g");
  CHECK(own.cluster.nic->bandwidth.base() == Approx(50e9));
}

TEST_CASE("programs of BigScience drop as Megatron-LM does by default, and keep masks", "[published]") {
  const auto v100 = [](const std::string& software, const std::string& model) {
    return step("r1," + model + ",24,2048,16,8192,gelu (2 matrices),50257,2048,V100-32GB-SXM2,8,4,NVLink2," + software +
                ",fp16,1,2,,4,ZeRO-1,none,1,512,23")
        .train;
  };
  const TrainOptions dropped = v100("Megatron-DeepSpeed (ZeRO-1)", "GPT-1.3B");
  CHECK(dropped.dropout == 0.1);
  CHECK(dropped.attention_dropout == 0.1);
  CHECK(dropped.dropout_masks);
  CHECK_FALSE(v100("Megatron-LM (April 2021)", "GPT-1.3B").dropout_masks);
  CHECK(v100("Megatron-LM (April 2021)", "GPT-1.3B").dropout == 0);
}

TEST_CASE("queries of small models with latents have none", "[published]") {
  const auto queries = [](const std::string& hidden) {
    const CsvTable t{
        "row_id,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,n_experts,moe_topk,moe_ffn,n_shared_experts,extra\n"
        "r1,Moonlight,2," +
            hidden + ",16,16,1024,1000,128,8,2,256,1,MLA kv_lora_rank=512\n",
        "rows.csv"};
    const Model m = std::get<RowNetwork>(read_network(t.row(0))).model(1);
    return std::count_if(m.parameters.begin(), m.parameters.end(),
                         [](const Parameter& p) { return contains(p.name, "q_a_proj"); });
  };
  CHECK(queries("2048") == 0);  // Moonlight-16B-A3B, DeepSeek-V2-Lite: q_lora_rank is null
  CHECK(queries("7168") == 1);
}

TEST_CASE("rows that lack what decides the time are skipped with the reason", "[published]") {
  const auto skip = [](const std::string& row) { return std::get<Skip>(read(row)); };
  CHECK(skip("r1,Llama,40,6144,48,,swiglu,51200,2048,A100,8,8,,Megatron-LM,fp16,8,1,,1,,full,4,8,1").detail ==
        "ffn is empty");
  CHECK(skip("r1,GPT,40,6144,48,24576,gelu,51200,2048,A100,8,8,,Megatron-LM,fp16,3,1,,1,,full,4,8,1").detail ==
        "tp 3 · pp 1 · cp 1 do not make 8 GPUs");
  CHECK(skip("r1,GPT,40,6144,48,24576,gelu,51200,2048,Abacus,8,8,,Megatron-LM,fp16,8,1,,1,,full,4,8,1").reason ==
        SkipReason::UnknownDevice);
  CHECK(
      step("r1,GPT,40,6144,48,24576,gelu,51200,2048,A100,8,8,,nothing known,fp16,8,1,,1,,full,4,8,1").profile.empty());
}

// Layers, microbatches and stages repeat: steps with fewer of them tell the time of the whole one.
TEST_CASE("a long step is what its short steps say", "[published][long]") {
  const auto* layout = GENERATE("8,1,,1,none,full,1,64", "2,4,,1,none,full,2,160", "1,1,,8,ZeRO-1,none,2,832",
                                "1,1,,8,ZeRO-3,none,2,832", "2,4,2,1,none,none,1,64");
  const PublishedStep s =
      step(std::string{"r1,GPT,40,2048,16,8192,gelu,51200,1024,A100-80GB-SXM4,8,8,,Megatron-LM,fp16,"} + layout + ",1");
  INFO(layout);
  const Machine machine = wiring().machine(s.cluster);
  const PredictedStep whole = simulated(s, machine), predicted = StepModel{s}.predict(machine);
  CHECK(predicted.seconds == Approx(whole.seconds).epsilon(0.02));
  CHECK(predicted.peak_bytes() == Approx(whole.peak_bytes()).epsilon(0.03));
  StepModel model{s};  // which first predicts without memory, then with it
  CHECK(model.seconds(machine) == predicted.seconds);
  CHECK(model.predict(machine).peak_bytes() == predicted.peak_bytes());
}

namespace {
ServedRow served(const std::string& rest, const std::string& origin = "Qwen_Qwen3-32B.csv") {
  const CsvTable table{
      "row_id,model,gpu,n_gpus,software,software_version,mode,gemm_quant,isl,osl,concurrency,batch,tp,ttft_ms,tpot_ms,"
      "origin\nr1," +
          rest + "," + origin + "\n",
      "test"};
  return std::get<ServedRow>(read_silicon_row(table.row(0), models()));
}
}  // namespace

TEST_CASE("a row of a server says its limits, its weights, and how its requests came", "[published]") {
  const ServedRow rc3 = served("Qwen/Qwen3-32B,H100-80GB-SXM,2,trtllm,1.0.0rc3,agg,fp8,9000,128,16,16,2,300,14");
  CHECK(rc3.options.replica.max_sequences == 2048);
  const ServedRow wide = served("Qwen/Qwen3-32B,H100-80GB-SXM,2,trtllm,1.0.0rc3,agg,,9000,128,16,16,2,300,14");
  CHECK(wide.options.replica.max_sequences == 15);     // a client always waits
  CHECK(rc3.options.replica.max_tokens == 9000 + 16);  // a whole prompt beside those that decode
  CHECK(rc3.options.weights == "fp8");
  CHECK(rc3.options.traffic.requests == 160);  // the whole run, with the first ones at once
  CHECK(rc3.first == 0);
  CHECK(rc3.at_once == 0);
  CHECK(rc3.options.traffic.groups == 0);
  const ServedRow oss =
      served("openai/gpt-oss-120b,H100-80GB-SXM,2,vllm,0.18.0,agg,nvfp4,1024,1024,64,64,2,100,7", "2026-04-06.csv");
  CHECK(oss.options.weights == "fp4_experts");
  CHECK(oss.options.replica.max_tokens == 8192);
  CHECK(oss.options.traffic.requests == 192);
  CHECK(oss.first == 64);
  CHECK(oss.at_once == Approx(0.1));
  CHECK(oss.options.replica.scheduler == "vllm_v1_async");
  CHECK(oss.options.replica.max_sequences == 64);
  CHECK(oss.reading == 3);
  const ServedRow r1 =
      served("deepseek-ai/DeepSeek-R1-0528,H200-141GB-SXM,8,trtllm,,agg,fp8,1024,1024,64,64,8,754,34", "db-dump/2026");
  CHECK(r1.options.replica.max_tokens == 1024 + 64 + 64);
  CHECK(r1.options.replica.memory_of == MemoryOf::Free);
  CHECK(r1.handing == 0.1);
  const ServedRow chunks = served(
      "deepseek-ai/DeepSeek-R1-0528,H200-141GB-SXM,8,sglang,0.5.9,agg,fp8,1024,1024,64,64,8,419,33", "db-dump/2026");
  CHECK(chunks.options.replica.max_tokens == 32768);
  CHECK(chunks.options.replica.memory_of == MemoryOf::WeightsAndPool);
  const ServedRow again =
      served("nvidia/Llama-3.1-8B-Instruct-FP8,H200-141GB-SXM,1,vllm,0.12.0,agg,fp8,4000,100,32,32,1,184,12");
  CHECK(again.options.replica.prefix_sharing);
  CHECK(again.options.traffic.groups == 100);
  CHECK(again.options.replica.max_tokens == 4032);
  const ServedRow mixed = served(
      "meta-llama/Llama-3.1-8B-Instruct,H200-141GB-SXM,1,sglang,0.5.6.post2,agg,fp8_block,4000,500,112,112,1,764,35");
  CHECK(mixed.options.replica.scheduler == "sglang_mixed");  // prompts share steps with sequences that decode
  CHECK_FALSE(mixed.options.replica.prefix_sharing);
  const ServedRow blackwell =
      served("openai/gpt-oss-120b,B200-180GB-SXM,2,vllm,0.15.1,agg,nvfp4,1024,1024,64,64,2,100,7", "2026-04-06.csv");
  CHECK(blackwell.profile == "vllm_blackwell");
  CHECK(blackwell.options.replica.kv_type == KvType::F8);
  CHECK(oss.options.replica.kv_type == KvType::Model);
  const auto now_and_then = [&](const std::string& gpu, const std::string& clients) {
    return served(fmt::format("deepseek-ai/DeepSeek-R1-0528,{},8,sglang,0.5.9,agg,fp8,1024,1024,{},{},8,402,13", gpu,
                              clients, clients),
                  "db-dump/2026")
        .options.replica.notice_every;
  };
  CHECK(now_and_then("B200-180GB-SXM", "8") == 10);
  CHECK(now_and_then("B200-180GB-SXM", "16") == 30);
  CHECK(now_and_then("H200-141GB-SXM", "16") == 1);
  CHECK(oss.profile == "vllm");
  const ServedRow burst = served("Qwen/Qwen3-32B,H100-80GB-SXM,2,sglang,0.5.1.post1,agg,,1024,128,64,64,2,2530,30");
  CHECK(burst.options.traffic.requests == 64);
  CHECK(burst.first == 0);
  CHECK(burst.at_once == 0);
}

TEST_CASE("an engine that is given all requests at once builds for what finds room", "[published]") {
  constexpr std::string_view kHead =
      "row_id,model,layers,hidden,heads,kv_heads,head_dim,ffn,vocab,gpu,n_gpus,software,precision,tp,pp,isl,osl,"
      "tokens_per_s,tokens_per_s_per_gpu";
  const auto offline = [&](const std::string& rest) {
    const CsvTable table{fmt::format("{}\na,Llama 3.1 8B,32,4096,32,8,128,14336,128256,{}\n", kHead, rest), "offline"};
    CHECK(kind_of(table).name == "served_offline");
    return read_offline_row(table.row(0), models());
  };
  const ServedRow row = std::get<ServedRow>(offline("H200-141GB-SXM,1,TensorRT-LLM 0.17,FP8,1,1,128,2048,25000,25000"));
  const ReplicaOptions& replica = row.options.replica;
  CHECK(replica.kv_type == KvType::F8);
  CHECK(replica.memory_of == MemoryOf::Free);
  CHECK(row.options.traffic.requests == 3000);
  const auto tokens = [&](const ServedRow& of, std::int64_t sequences) {
    ServeOptions o = of.options;
    of.limits({.blocks = sequences * (128 + 2048) / o.replica.block}, o);
    return o.replica.max_tokens;
  };
  CHECK(tokens(row, 800) == 2048);   // 800·(1 + 128/2048) = 850, and at least 2048
  CHECK(tokens(row, 3000) == 3328);  // 3187.5, in steps of 256
  const ServedRow prompts =
      std::get<ServedRow>(offline("A100-SXM4-80GB,2,TensorRT-LLM 0.17,FP16,2,1,2048,128,800,400"));
  CHECK(prompts.options.replica.kv_type == KvType::Model);
  CHECK(prompts.measured.front().second == 800);
  CHECK(tokens(prompts, 1000) == 17408);  // 1000·17, in steps of 1024
  CHECK(std::get<Skip>(offline("H200-141GB-SXM,2,TensorRT-LLM 0.17,FP8,1,2,128,128,1,1")).reason ==
        SkipReason::UnsupportedFeature);
  CHECK(std::get<Skip>(offline("H200-141GB-SXM,1,TensorRT-LLM 0.17,FP8,1,1,128,128,,")).reason ==
        SkipReason::NoMeasurement);
  const auto profile = [&](const std::string& rest) { return std::get<ServedRow>(offline(rest)).profile; };
  CHECK(row.profile == "tensorrt_llm_offline");
  CHECK(profile("B200-180GB-SXM,1,TensorRT-LLM 0.19,FP4,1,1,128,2048,9925,9925") == "tensorrt_llm_offline");
  CHECK(profile("B200-180GB-SXM,1,TensorRT-LLM 1.2,FP4,1,1,128,2048,9925,9925") == "tensorrt_llm_blackwell");
  const CsvTable together{fmt::format("{},batch\n", kHead), "static"};
  CHECK(kind_of(together).name == "static_batch");
}

TEST_CASE("a run names its engine's version, and pods do not see that they share a node", "[published]") {
  const auto run = [&](const std::string& section, const std::string& software) {
    const std::string text = fmt::format(
        "row_id,model,layers,hidden,heads,kv_heads,head_dim,ffn,vocab,gpu,n_gpus,interconnect,software,precision,tp,pp,"
        "concurrency,request_rate,isl,osl,latency_ms,ttft_ms,tpot_ms,extra,notes,section\n"
        "a,Qwen2-7B-Instruct,28,3584,28,4,128,18944,152064,A100 (80GB),2,same node (link unspecified),{},BF16,2,1,"
        "10,inf,1024,1024,1000,100,10,,latency_ms is the duration,{}\n",
        software, section);
    const CsvTable table{text, "runs"};
    return std::get<ServedRow>(read_serving_run(table.row(0), models()));
  };
  const ServedRow pods = run("Test 2: 2 GPU pods in the same node", "vLLM 0.10.1.1 (V1 engine)");
  CHECK(pods.cluster.nodes == 2);
  CHECK(pods.cluster.devices_per_node == 1);
  CHECK(pods.profile == "vllm_0_10");
  const ServedRow one = run("Test 2", "vLLM 0.12");
  CHECK(one.cluster.nodes == 1);
  CHECK(one.cluster.devices_per_node == 2);
  CHECK(one.profile == "vllm");
}

TEST_CASE("a run of SGLang says what of its memory the pool is, and what its requests look like", "[published]") {
  const auto run = [&](const std::string& software, const std::string& extra) {
    const std::string text = fmt::format(
        "row_id,model,layers,hidden,heads,kv_heads,head_dim,ffn,vocab,gpu,n_gpus,software,precision,tp,request_rate,"
        "isl,"
        "osl,latency_ms,ttft_ms,extra\n"
        "a,Llama-3.1-8B,32,4096,32,8,128,14336,128256,H200 (141GB),4,\"{}\",BF16,4,4,200,100,1000,100,{}\n",
        software, extra);
    const CsvTable table{text, "runs"};
    return std::get<ServedRow>(read_serving_run(table.row(0), models()));
  };
  const std::string drawn = "dataset=random;n_requests=10;random_input_max=400;random_output_max=200;range_ratio=0.0";
  const ServedRow old = run("SGLang (2024-12/2025-01), torch.compile, radix cache off", drawn);
  CHECK(old.options.replica.memory == 0.85);
  CHECK(old.options.replica.memory_of == MemoryOf::WeightsAndPool);
  CHECK(old.options.replica.known_lengths);
  CHECK(old.options.traffic.prompt.kind == LengthKind::Uniform);
  CHECK(old.options.traffic.output.most == 200);
  const ServedRow now = run("SGLang 0.5.6", "dataset=sharegpt;n_requests=10");
  CHECK_FALSE(now.options.replica.known_lengths);
  CHECK(now.options.replica.memory_of == MemoryOf::Device);
  // √(0.62⁻² − 1) = 1.27 of the mean.
  CHECK(now.options.traffic.output.kind == LengthKind::Lognormal);
  CHECK(now.options.traffic.output.deviation == Approx(100 * std::sqrt(1 / (0.62 * 0.62) - 1)).epsilon(0.01));
  CHECK(now.options.traffic.output.most == 2044);
  CHECK(now.options.traffic.prompt.most == 1024);
}

TEST_CASE("a server's profile follows from its software and device, whatever kind of row names it", "[published]") {
  const auto profile = [](std::string_view software, std::string_view device, Asked asked = Asked::Server) {
    return profile_of(*find_server(software), asked, software, device);
  };
  for (const char* device : {"b200", "b300", "gb200", "gb300"}) {
    CHECK(profile("vLLM 0.10.1.1", device) == "vllm_blackwell");
    CHECK(profile("SGLang (2025-03)", device) == "sglang_blackwell");
    CHECK(profile("TensorRT-LLM", device) == "tensorrt_llm_blackwell");
    CHECK(profile("TensorRT-LLM 1.0", device, Asked::Engine) == "tensorrt_llm_blackwell");
    CHECK(profile("TensorRT-LLM 0.19", device, Asked::Engine) == "tensorrt_llm_offline");
  }
  CHECK(profile("vllm", "h100_sxm") == "vllm");
  CHECK(profile("vllm", "rtx_4090") == "vllm_rtx_4090");
  CHECK(profile("vllm", "rtx_pro_6000") == "vllm");
  CHECK(profile("SGLang (2024-12/2025-01)", "h200_sxm") == "sglang_2024");
  CHECK(profile("trtllm", "h200_sxm") == "tensorrt_llm");
  CHECK(profile("TensorRT-LLM 1.0", "h200_sxm", Asked::Engine) == "tensorrt_llm_offline");
}

TEST_CASE("TensorRT-LLM narrows keys with the weights, others and models with experts alone in 4 bits do not",
          "[published]") {
  const auto keys = [](std::string_view software, const std::string& weights) {
    ServedRow r;
    r.cluster.device = "b200";
    r.options.weights = weights;
    apply_server(r, *find_server(software), software, Asked::Server);
    return r.options.replica.kv_type;
  };
  CHECK(keys("trtllm", "fp8") == KvType::F8);
  CHECK(keys("TensorRT-LLM", "fp4") == KvType::F8);
  CHECK(keys("trtllm", "fp4_experts") == KvType::Model);
  CHECK(keys("trtllm", "model") == KvType::Model);
  CHECK(keys("vllm", "fp8") == KvType::Model);
  CHECK(keys("sglang", "fp4") == KvType::Model);
}
