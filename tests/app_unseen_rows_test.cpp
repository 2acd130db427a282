// SPDX-License-Identifier: Apache-2.0
// Rows and tables as others may write them: columns that are missing, cells that hold anything, software and models of
// which little is known.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/app/accuracy/evaluate.hpp"
#include "sim/app/accuracy/named_models.hpp"
#include "sim/app/accuracy/serving_rows.hpp"
#include "sim/strategy/model_parts.hpp"
#include "tests/published_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

using Cells = std::vector<std::string>;

/// A table of one row.
struct OneRow {
  std::string kind;
  Cells head, row;

  CsvTable table() const {
    return CsvTable{fmt::format("{}\n{}\n", fmt::join(head, ","), fmt::join(row, ",")), "rows.csv"};
  }
  OneRow without(std::size_t column) const {
    OneRow o = *this;
    o.head.erase(o.head.begin() + std::ptrdiff_t(column));
    o.row.erase(o.row.begin() + std::ptrdiff_t(column));
    return o;
  }
  OneRow with(std::size_t column, std::string cell) const {
    OneRow o = *this;
    o.row[column] = std::move(cell);
    return o;
  }
};

OneRow one_row(std::string kind, std::string_view head, std::string_view row) {
  const auto split = [](std::string_view text) {
    Cells cells{""};
    for (const char c : text)
      if (c == ',')
        cells.emplace_back();
      else
        cells.back() += c;
    return cells;
  };
  return {std::move(kind), split(head), split(row)};
}

/// A row of each kind, with the columns that its tables have.
std::vector<OneRow> rows() {
  return {
      one_row("gemm", "gpu,dtype,m,n,k,latency_us", "H100-80GB-SXM,bf16,64,4096,4096,15"),
      one_row("attention", "gpu,phase,dtype,batch,q_len,kv_len,heads,kv_heads,head_dim,latency_us",
              "A100-SXM4-80GB,decode,bf16,8,1,1024,32,8,128,20"),
      one_row("moe",
              "gpu,dtype,num_tokens,hidden,expert_ffn,topk,n_experts,moe_tp,moe_ep,token_distribution,latency_us",
              "A100-SXM4-80GB,bf16,64,4096,1536,8,64,1,1,balanced,900"),
      one_row("fp32_ops", "gpu,op,b,m,n,k,h,latency_ms", "V100,bmm,16,512,512,64,,0.1"),
      one_row("collectives", "op,gpu,n_gpus,n_nodes,interconnect,message_bytes,latency_us,busbw_GBps",
              "all_reduce,A100-SXM4-80GB,8,1,NVLink,1048576,50,"),
      one_row("expert_exchanges", "gpu,mode,n_nodes,hidden,num_tokens,topk,n_experts,sms,dispatch_us,combine_us",
              "H100-80GB-SXM,normal,1,7168,4096,8,256,24,400,450"),
      one_row("training",
              "row_id,model,layers,hidden,heads,kv_heads,head_dim,ffn,ffn_type,vocab,seq,gpu,n_gpus,gpus_per_node,"
              "interconnect,software,version_date,precision,tp,pp,vpp,cp,ep,dp,shard_mode,seq_parallel,recompute,"
              "mbs,n_microbatches,gbs,iter_time_s,samples_per_s,tokens_per_s,peak_mem_gb,extra,notes,confidence",
              "r1,GPT,2,1024,16,16,64,4096,gelu (2 matrices),51200,1024,A100-80GB-SXM4,8,8,NVLink,"
              "Megatron-LM (May 2022),2022-05,bf16,2,2,1,1,1,2,,yes,none,2,4,16,0.04,400,,10,,,source"),
      one_row("mlperf_training",
              "benchmark,accelerator,n_nodes,accelerators_per_node,n_accelerators,host_networking,"
              "global_batch_size,seq_len,median_step_time_s,median_throughput,model,layers,hidden,heads,ffn,vocab",
              "bert,NVIDIA H100-SXM5-80GB,1,8,8,,448,512,,8000,BERT-large,24,1024,16,4096,30522"),
      one_row("static_batch",
              "model,layers,hidden,heads,ffn,vocab,gpu,n_gpus,software,precision,tp,pp,batch,isl,osl,latency_ms",
              "GPT-350M,4,1024,16,4096,51200,A100-SXM4-80GB,1,FasterTransformer,FP16,1,1,4,128,8,10"),
      one_row("fp32_passes", "mode,model,layers,hidden,heads,ffn,vocab,gpu,n_gpus,precision,fusion,gbs,seq,latency_ms",
              "inference forward,GPT2-Large,2,1280,20,5120,50257,V100,1,FP32,no,2,512,20"),
      one_row("served_clients",
              "model,gpu,software,software_version,mode,gemm_quant,isl,osl,concurrency,batch,tp,pp,n_gpus,ttft_ms,"
              "tpot_ms,quality",
              "meta-llama/Llama-3.1-8B-Instruct,H100-80GB-SXM,trtllm,1.0.0,agg,,256,16,2,2,1,1,1,20,7,clean"),
      one_row("served_runs",
              "model,layers,hidden,heads,kv_heads,head_dim,ffn,ffn_type,vocab,gpu,n_gpus,software,precision,tp,pp,"
              "concurrency,request_rate,isl,osl,ttft_ms,tpot_ms,extra,notes",
              "Llama,2,4096,32,8,128,14336,swiglu,128256,A100 (80GB),1,vLLM 0.10.1,BF16,1,1,4,,128,16,30,3,,mean"),
      one_row("served_offline",
              "model,layers,hidden,heads,kv_heads,head_dim,ffn,ffn_type,vocab,gpu,n_gpus,software,precision,tp,pp,"
              "isl,osl,tokens_per_s,tokens_per_s_per_gpu",
              "LLaMA,2,4096,32,8,128,14336,swiglu,32000,H100-80GB-SXM,1,TensorRT-LLM 0.17,FP8,1,1,20000,2000,9000,"),
      one_row("served_requests",
              "run_id,request_id,arrival_s,input_tokens,output_tokens,queued_s,ttft_from_queued_ms,tpot_ms,"
              "e2e_from_queued_ms",
              "lss-RTX4090-Llama-3.1-8B,a,0,200,20,0,60,18,400"),
  };
}

RowResult predicted(const OneRow& row) {
  const CsvTable table = row.table();
  return evaluate(table, kind_of(table), wiring(), [](double) {}).results.front();
}

/// What is predicted and measured in words; for a skip its reason.
std::string text_of(const RowResult& result) {
  if (const auto* skip = std::get_if<Skip>(&result)) return std::string{name_of(skip->reason)};
  std::string text;
  for (const Observation& o : std::get<RowPrediction>(result).observations)
    text += fmt::format("{} {} of {}; ", o.quantity, o.predicted, o.measured);
  return text;
}

bool is_sound(const RowResult& result) {
  const auto* row = std::get_if<RowPrediction>(&result);
  if (!row) return true;
  const auto positive = [](double v) { return std::isfinite(v) && v > 0; };
  return std::all_of(row->observations.begin(), row->observations.end(), [&](const Observation& o) {
    return positive(o.measured) && positive(o.predicted) && positive(o.low) && positive(o.high);
  });
}

StepOfRow step_of(const OneRow& row) {
  const CsvTable t = row.table();
  return read_step(t.row(0), wiring().locations().clusters());
}

std::string skipped(const StepOfRow& step) {
  const auto* skip = std::get_if<Skip>(&step);
  return skip ? fmt::format("{}: {}", name_of(skip->reason), skip->detail) : "read";
}

/// A row of a step of one GPU of any software.
OneRow plain_step(std::string_view software, std::string_view column, std::string_view cell) {
  return one_row("training", fmt::format("model,layers,hidden,heads,seq,gpu,n_gpus,mbs,software,{}", column),
                 fmt::format("GPT,2,1024,16,1024,A100-80GB-SXM4,1,4,{},{}", software, cell));
}

}  // namespace

TEST_CASE("a row of each kind is told from the others by few columns, and predicted") {
  std::vector<std::string> kinds;
  for (const OneRow& row : rows()) {
    INFO(row.kind);
    CHECK(kind_of(row.table()).name == row.kind);
    const RowResult result = predicted(row);
    INFO(text_of(result));
    CHECK(std::holds_alternative<RowPrediction>(result));
    kinds.push_back(row.kind);
  }
  for (const RowKind& k : row_kinds()) CHECK(std::count(kinds.begin(), kinds.end(), k.name) == 1);
}

TEST_CASE("a table without a column is one in which it is empty") {
  for (const OneRow& row : rows())
    for (std::size_t c = 0; c < row.head.size(); ++c) {
      const OneRow lean = row.without(c);
      const CsvTable table = lean.table();
      const auto kind = find_kind(table);
      if (!kind || kind->name != row.kind) continue;  // a column that tells the kind
      INFO(row.kind << " without " << row.head[c]);
      const RowResult result = predicted(lean);
      CHECK(is_sound(result));
      CHECK(text_of(result) == text_of(predicted(row.with(c, ""))));
    }
}

TEST_CASE("no cell of a row makes a prediction that is no number") {
  for (const OneRow& row : rows())
    for (std::size_t c = 0; c < row.head.size(); ++c)
      for (const char* cell : {"x", "-1", "0", "1e30"}) {
        if (row.kind.starts_with("served") && *cell != '-') continue;  // which take longer
        const RowResult result = predicted(row.with(c, cell));
        INFO(row.kind << ", " << row.head[c] << " is '" << cell << "': " << text_of(result));
        CHECK(is_sound(result));
      }
}

TEST_CASE("software without a profile is as fast as kernels alone, within a wide interval, and its memory unknown") {
  const RowResult result = predicted(plain_step("SomeTrainer 1.0", "tokens_per_s", "100000"));
  REQUIRE(std::holds_alternative<RowPrediction>(result));
  const RowPrediction& p = std::get<RowPrediction>(result);
  REQUIRE(p.observations.size() == 1);
  // one pass of 4 samples of 1024 tokens at 100,000 tokens a second
  CHECK(p.observations[0].measured == Approx(4 * 1024 / 100000.0));
  CHECK(p.observations[0].profile.empty());
  CHECK(p.observations[0].high / p.observations[0].predicted > 1.6);
  CHECK(p.outcomes.empty());
  CHECK(text_of(predicted(plain_step("SomeTrainer 1.0", "peak_mem_gb", "20"))) == "unsupported_feature");
  CHECK(text_of(predicted(plain_step("Megatron-LM", "tokens_per_s", "100000"))) == "incomplete");  // how many passes?
}

TEST_CASE("PyTorch stores scores until 2023 where nothing else is said") {
  const auto stores = [](const char* software, const char* date) {
    OneRow row = plain_step(software, "version_date", date);
    return std::get<PublishedStep>(step_of(row)).train.stored_scores;
  };
  CHECK(stores("DeepLearningExamples", "2021-22"));
  CHECK_FALSE(stores("DeepLearningExamples", "2024"));
  CHECK_FALSE(stores("DeepLearningExamples", ""));
  CHECK_FALSE(stores("flash-attention training scripts", "2022-11"));
}

TEST_CASE("layers that no network here has are told from those that it has") {
  const auto network = [](const char* model, const char* ffn_type, const char* experts, const char* shared) {
    return one_row(
        "training",
        "layers,hidden,heads,kv_heads,ffn,vocab,seq,moe_topk,moe_ffn,model,ffn_type,n_experts,n_shared_experts",
        fmt::format("4,1024,16,4,4096,32000,128,2,512,{},{},{},{}", model, ffn_type, experts, shared));
  };
  const auto block = [&](const OneRow& row) {
    const CsvTable t = row.table();
    const Model m = std::get<RowNetwork>(read_network(t.row(0))).model(1);
    return std::get<Transformer>(m.network).decoder.front();
  };
  // Nemotron: no gate, fewer heads of keys
  const Block nemotron = block(network("Nemotron-15B", "relu2 (2 matrices)", "", ""));
  CHECK_FALSE(std::get<Mlp>(nemotron.ffn).gate);
  CHECK(nemotron.attention.kv_heads == 4);
  CHECK(std::get<MoE>(block(network("Llama 4 Scout", "swiglu", "8", "1")).ffn).shared);
  CHECK(std::holds_alternative<LatentAttention>(block(network("Kimi_K2", "swiglu", "8", "1")).attention.projections));
  const auto why = [&](const OneRow& row) {
    const CsvTable t = row.table();
    return std::get<Skip>(read_network(t.row(0))).detail;
  };
  CHECK(why(network("Nemotron_3_Nano", "relu2", "8", "1")) == "layers of Mamba");
  CHECK(why(network("Qwen3_Next_80B", "swiglu", "8", "1")) == "layers of linear attention");
  CHECK(why(network("DeepSeek-V4", "swiglu", "8", "1")) == "sparse attention");
  CHECK(why(network("DEEPSEEK_V3.2", "swiglu", "8", "1")) == "sparse attention");
}

TEST_CASE("Llama 4 Maverick has experts in every second layer, and layers twice as wide as they are between them") {
  const OneRow row = one_row(
      "training", "layers,hidden,heads,kv_heads,head_dim,ffn,vocab,seq,moe_topk,moe_ffn,model,ffn_type,n_experts",
      "48,5120,40,8,128,16384,202048,8192,1,8192,Llama 4 Maverick,swiglu,128");
  const CsvTable table = row.table();
  const Model m = std::get<RowNetwork>(read_network(table.row(0))).model(48);
  CHECK(m.parameter_count() == 400'711'848'960);  // as published
  const auto& decoder = std::get<Transformer>(m.network).decoder;
  CHECK(std::holds_alternative<Mlp>(decoder[0].ffn));
  CHECK(std::get<MoE>(decoder[1].ffn).experts.size() == 128);
  // a row that gives the width of experts alone
  const OneRow narrow = row.with(5, "");
  const CsvTable other = narrow.table();
  CHECK(std::get<RowNetwork>(read_network(other.row(0))).model(48).parameter_count() == m.parameter_count());
}

TEST_CASE("a step of Llama 4 Maverick is predicted, with weights in front of its experts in any program") {
  const OneRow row = one_row(
      "training",
      "model,layers,hidden,heads,kv_heads,head_dim,ffn,ffn_type,vocab,seq,n_experts,moe_topk,moe_ffn,gpu,n_gpus,"
      "gpus_per_node,interconnect,software,precision,tp,pp,ep,dp,mbs,gbs,iter_time_s",
      "Llama4-Maverick,4,1024,8,4,128,4096,swiglu,32000,1024,8,1,2048,H100-80GB-SXM,8,8,NVLink,Megatron-Core 0.12,"
      "bf16,1,1,8,8,1,16,0.1");
  CHECK_FALSE(std::get<PublishedStep>(step_of(row)).train.weigh_inside);
  CHECK(std::holds_alternative<RowPrediction>(predicted(row)));
  const auto name = std::find(row.head.begin(), row.head.end(), "model") - row.head.begin();
  CHECK(std::get<PublishedStep>(step_of(row.with(std::size_t(name), "Qwen3 MoE"))).train.weigh_inside);
}

TEST_CASE("a layout that does not make its GPUs is incomplete") {
  OneRow row = rows()[6];
  REQUIRE(row.kind == "training");
  const auto dp = std::find(row.head.begin(), row.head.end(), "dp") - row.head.begin();
  CHECK(skipped(step_of(row.with(std::size_t(dp), "4"))) == "incomplete: dp 4 · tp 2 · pp 2 · cp 1 do not make 8 GPUs");
}

TEST_CASE("logs of MLPerf's GPT-3 count samples or tokens") {
  const auto seconds = [](const char* rate) {
    const OneRow row = one_row(
        "mlperf_training",
        "benchmark,accelerator,n_accelerators,accelerators_per_node,global_batch_size,seq_len,tp,pp,mbs,model,layers,"
        "hidden,heads,ffn,vocab,median_throughput",
        fmt::format("gpt3,NVIDIA H100-SXM5-80GB,512,8,2048,2048,4,8,2,GPT-3,96,12288,96,49152,51200,{}", rate));
    const CsvTable t = row.table();
    const PublishedStep step = std::get<PublishedStep>(read_step(t.row(0), wiring().locations().clusters()));
    CHECK(step.mesh.samples == 2);
    CHECK(step.train.narrow == Narrow::EightBits);
    return read_measured_step(t.row(0), step).seconds;
  };
  CHECK(seconds("128") == Approx(16));     // samples a second
  CHECK(seconds("262144") == Approx(16));  // 128 · 2048 tokens a second
}

TEST_CASE("ranks of a server have heads of keys of their own") {
  const auto kv_heads = [](const char* name, std::int64_t tp) {
    const auto model = named_model(name, tp, wiring().locations());
    REQUIRE(model);
    return std::get<Transformer>(model->network).decoder.front().attention.kv_heads;
  };
  CHECK(kv_heads("Qwen/Qwen3-235B-A22B-FP8", 4) == 4);
  CHECK(kv_heads("Qwen/Qwen3-235B-A22B-FP8", 8) == 8);
  CHECK(kv_heads("Qwen/Qwen3-30B-A3B", 3) == 4);
  CHECK(kv_heads("openai/gpt-oss-20b", 16) == 16);
  CHECK(kv_heads("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 16) == 8);  // 40 heads are no multiple of 16
  CHECK(kv_heads("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 20) == 8);
  CHECK(kv_heads("meta-llama/Llama-4-Scout-17B-16E-Instruct", 40) == 40);
}

TEST_CASE("a model that rows name is made once for each number of ranks") {
  NamedModels models{wiring().locations()};
  const auto four = models.find("Qwen/Qwen3-30B-A3B", 4), eight = models.find("Qwen/Qwen3-30B-A3B", 8);
  CHECK(models.find("Qwen/Qwen3-30B-A3B", 4) == four);
  const auto kv_heads = [](const std::shared_ptr<const Model>& model) {
    REQUIRE(model);
    return std::get<Transformer>(model->network).decoder.front().attention.kv_heads;
  };
  CHECK(kv_heads(four) == 4);
  CHECK(kv_heads(eight) == 8);
  for (int i = 0; i < 2; ++i) CHECK(models.find("deepseek-ai/DeepSeek-V3.2", 4) == nullptr);
}

TEST_CASE("names of models decide by their longest known part") {
  const auto layers = [](const char* name) {
    const auto model = named_model(name, 1, wiring().locations());
    return model ? std::get<Transformer>(model->network).decoder.size() : 0;
  };
  CHECK(layers("nvidia/Llama-3.3-70B-Instruct-FP8") == 80);
  CHECK(layers("deepseek-ai/DeepSeek-R1-0528") == 61);
  CHECK(layers("deepseek-ai/DeepSeek-R1-Distill-Llama-8B") == 32);
  CHECK(layers("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B") == 0);
  CHECK(layers("deepseek-ai/DeepSeek-V3.2") == 0);
  CHECK(layers("moonshotai/Kimi-K2.5") == 61);
  CHECK(layers("meta-llama/Llama-4-Scout-17B-16E-Instruct") == 48);
}

TEST_CASE("servers that split requests or layers over ranks are skipped") {
  OneRow row = rows()[10];
  REQUIRE(row.kind == "served_clients");
  const auto why = [&](const char* column, const char* cell) {
    OneRow changed = row;
    const auto at = std::find(row.head.begin(), row.head.end(), column);
    if (at == row.head.end())
      changed.head.emplace_back(column), changed.row.emplace_back(cell);
    else
      changed.row[std::size_t(at - row.head.begin())] = cell;
    return text_of(predicted(changed));
  };
  CHECK(why("attention_dp", "8") == "unsupported_feature");
  CHECK(why("pp", "2") == "unsupported_feature");
  CHECK(why("mode", "disagg") == "unsupported_feature");
  CHECK(why("quality", "work in progress") == "ambiguous");
}
