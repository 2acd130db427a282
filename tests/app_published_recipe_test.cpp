// SPDX-License-Identifier: Apache-2.0
// What recipes of published steps had on: of networks with experts, of NVIDIA's programs.
#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "sim/app/accuracy/row_recipe.hpp"
#include "tests/published_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("recipes of NVIDIA multiply rows in pieces but for DeepSeek's and Moonlight's, and in 4 bits",
          "[published]") {
  const auto in_pieces = [](const std::string& model, const std::string& precision) {
    const CsvTable t{"row_id,model,precision\nr1," + model + "," + precision + "\n", "rows.csv"};
    return multiplies_in_pieces(t.row(0));
  };
  CHECK(in_pieces("LLAMA3_70B", "MXFP8"));
  CHECK_FALSE(in_pieces("LLAMA3_70B", "NVFP4"));
  CHECK_FALSE(in_pieces("Deepseek V3", "BF16"));
  CHECK_FALSE(in_pieces("Moonlight-16B-A3B", "BF16"));
}

namespace {

/// A row of a network with experts, and what its program was told.
PublishedStep told(const std::string& software, const std::string& layout, const std::string& recompute,
                   const std::string& extra) {
  const CsvTable t{
      "row_id,model,layers,hidden,heads,kv_heads,ffn,ffn_type,vocab,seq,n_experts,moe_topk,moe_ffn,gpu,n_gpus,"
      "gpus_per_node,software,precision,tp,pp,dp,ep,recompute,mbs,gbs,iter_time_s,extra,notes\n"
      "r1,Qwen3,48,2048,32,4,6144,swiglu,151936,4096,128,8,768,H100,16,8," +
          software + ",BF16," + layout + ",\"" + recompute + "\",1,64,20," + extra + "\n",
      "rows.csv"};
  const StepOfRow read_row = read_step(t.row(0), wiring().locations().clusters());
  REQUIRE(std::holds_alternative<PublishedStep>(read_row));
  return std::get<PublishedStep>(read_row);
}

}  // namespace

TEST_CASE("a row tells what is hidden, replayed and split", "[published]") {
  const PublishedStep some = told("Megatron-Bridge", "1,1,16,16", "", "TE CUDA graphs router+preprocess,EP overlap on");
  CHECK(some.parallel.expert_overlap);
  CHECK(some.parallel.expert_buffer == 1);
  CHECK(some.graphs == Approx(0.2));
  CHECK_FALSE(told("Megatron-Bridge", "1,1,16,16", "", "dispatcher=alltoall,EP overlap off").parallel.expert_overlap);
  CHECK(told("Megatron-Bridge", "1,1,16,16", "", "cuda_graph=local:full_iteration;a2a_overlap=False,").graphs == 1);
  CHECK(told("Megatron-Bridge", "1,1,16,16", "", "cuda_graph=none:full_iteration;a2a_overlap=False,").graphs == 0);
  CHECK(told("Megatron-Bridge", "1,1,16,16", "", "dispatcher=HybridEP;TE CUDA graphs,").graphs == Approx(0.2));
  CHECK(told("Megatron-Bridge", "1,1,16,16", "", "cuda_graph=transformer_engine:['mamba'],").graphs == 0);
  CHECK(told("Megatron-Bridge", "2,1,8,4", "", ",").parallel.sequence_parallel);  // by its recipes
  CHECK(told("Megatron-Bridge", "2,1,8,4", "", ",").parallel.tp_comm_overlap);
  CHECK_FALSE(told("Megatron-Bridge", "1,1,16,4", "", ",").parallel.tp_comm_overlap);
  CHECK_FALSE(told("Megatron-LM", "2,1,8,4", "", ",").parallel.tp_comm_overlap);
  CHECK(told("Megatron-Bridge", "2,1,8,4", "full x6 layers per stage", ",").recomputed == Approx(6.0 / 48));
  const PublishedStep all = told("Megatron-Bridge", "2,1,8,16", "", ",");  // 16 ranks of experts, 8 replicas
  CHECK(all.mesh.text(1) == "ep8 tp2");
  CHECK(all.parallel.whole_experts);
  CHECK(told("Megatron-Bridge", "2,1,8,4", "", "etp=1,").mesh.text(1) == "dp4 ep2 tp2");
  CHECK_FALSE(told("Megatron-Bridge", "2,1,8,4", "", ",").parallel.whole_experts);
  CHECK(all.train.weigh_inside);
  CHECK_FALSE(all.train.optimizer.narrow_moments);
  CHECK(all.train.optimizer.widen_gradients);
  CHECK_FALSE(all.train.keep_narrow);
  const PublishedStep titan = told("torchtitan (FSDP2)", "1,1,16,1", "selective layer", ",");
  CHECK(titan.recomputed == Approx(0.5));
  CHECK(titan.train.loss == LossKind::Torch);
  CHECK(told("Megatron-Bridge", "2,1,8,4", "", ",").train.loss == LossKind::Fused);
  CHECK(told("torchtitan (FSDP2)", "1,1,16,1", "selective op", ",").train.recompute_parts ==
        std::vector{RecomputePart::AllButEverySecondProduct});
}

TEST_CASE("scripts of NVIDIA that are written down say what is recomputed", "[published]") {
  const auto parts = [](const std::string& gpu) {
    return step("r1,Deepseek V3,61,7168,128,18432,swiglu (3 matrices),129280,4096," + gpu +
                ",512,8,NVLink,NVIDIA NeMo via dgxc-benchmarking v25.05.05,BF16,2,8,,32,,,1,4096,48.9")
        .train.recompute_parts;
  };
  CHECK(parts("H100-80GB-SXM") == std::vector{RecomputePart::Latents});
  CHECK(parts("GB200") == std::vector{RecomputePart::Core});
}

TEST_CASE("heads of latent attention have stored scores on Blackwell before cuDNN 9.11", "[published]") {
  const auto stores = [](const std::string& gpu, const std::string& software) {
    return step("r1,Deepseek V3,61,7168,128,18432,swiglu (3 matrices),129280,4096," + gpu + ",512,8,NVLink," +
                software + ",BF16,2,8,,32,,,1,4096,48.9")
        .train.stored_scores;
  };
  CHECK(stores("GB200", "NVIDIA NeMo via dgxc-benchmarking v25.05.05"));
  CHECK_FALSE(stores("H100-80GB-SXM", "NVIDIA NeMo via dgxc-benchmarking v25.05.05"));
  CHECK_FALSE(stores("GB200", "Megatron-Bridge"));
}

// Of k = 8 even choices among n places n·(1 − (1 − 1/n)^8) are reached: of 8 ranks in a node 5.251, of 2 nodes 1.992.
TEST_CASE("DeepEP and HybridEP send a token to a node once, and in a node to a rank once", "[published]") {
  CHECK(told("Megatron-Bridge", "1,1,16,8", "", "dispatcher=HybridEP,").sent == Approx(5.251 / 8).epsilon(1e-3));
  CHECK(told("Megatron-Bridge", "1,1,16,16", "", "dispatcher=deepep,").sent == Approx(1.992 / 8).epsilon(1e-3));
  CHECK(told("Megatron-Bridge", "2,1,8,8", "", "dispatcher=hybridep,").sent == Approx(1.992 / 8).epsilon(1e-3));
  CHECK(told("Megatron-Bridge", "1,1,16,8", "", ",force-balanced").sent < 1);  // as most recipes
  CHECK(told("Megatron-Bridge", "1,1,16,8", "", ",force-balanced; token-drop").sent == 1);
  CHECK(told("Megatron-Bridge", "1,1,16,8", "", "dispatcher=alltoall,").sent == 1);
  CHECK(told("Megatron-Bridge", "1,1,16,8", "", "dispatcher=None,force-balanced").sent == 1);
  CHECK(told("Megatron-Bridge", "1,1,16,1", "", "dispatcher=HybridEP,").sent == 1);
}

TEST_CASE("NeMo's GPT-3 drops rows, and its squares of ReLU are six kernels", "[published]") {
  const auto row = [](const std::string& model, const std::string& activation, const std::string& software) {
    return step("r1," + model + ",4,1024,16,4096," + activation + ",51200,1024,H100,2,8,," + software +
                ",BF16,1,1,,2,,,1,4,1");
  };
  const std::string nemo = "NVIDIA NeMo container 24.09 (Megatron-Core)";
  CHECK(row("GPT3-5B", "gelu (2 matrices)", nemo).train.dropout == 0.1);
  CHECK(row("GPT3-5B", "gelu (2 matrices)", nemo).train.dropout_masks);
  CHECK(row("GPT3-5B", "gelu (2 matrices)", "Megatron-Bridge").train.dropout == 0);
  const PublishedStep squares = row("Nemotron-8B", "relu2 (2 matrices)", nemo);
  CHECK(squares.train.dropout == 0);
  CHECK(squares.eager_squares);
  CHECK_FALSE(row("GPT3-5B", "gelu (2 matrices)", nemo).eager_squares);
  Plan plan;
  plan.works = {ActivationForward{.kind = ActivationKind::Relu, .rows = 6, .cols = 2},
                ActivationBackward{.kind = ActivationKind::Relu, .rows = 6, .cols = 2},
                ActivationForward{.kind = ActivationKind::Silu, .rows = 6, .cols = 2},
                Collective{.kind = CollectiveKind::AllToAll, .bytes = Bytes{800}, .row = 2},
                Collective{.kind = CollectiveKind::AllToAll, .bytes = Bytes{800}}};
  PublishedStep counted = squares;
  counted.sent = 0.25;
  const Plan ran = as_it_ran(plan, counted);
  CHECK(std::get<ActivationForward>(ran.works[0]).rows == 12);   // two kernels that read and write
  CHECK(std::get<ActivationBackward>(ran.works[1]).rows == 20);  // two such, and two of two reads: 10 for our 3
  CHECK(std::get<ActivationForward>(ran.works[2]).rows == 6);
  CHECK(std::get<Collective>(ran.works[3]).bytes == Bytes{200});
  CHECK(std::get<Collective>(ran.works[4]).bytes == Bytes{800});  // not of counted rows
}
