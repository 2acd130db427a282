// SPDX-License-Identifier: Apache-2.0
// The configurations in scenarios/models have exactly the parameters that their publishers count.
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "sim/model/load.hpp"
#include "sim/model/print.hpp"

using namespace orrery;

namespace {

const std::filesystem::path kModels = std::filesystem::path{ORRERY_SOURCE_DIR} / "scenarios" / "models";

Model shipped(const std::string& name) { return load_model((kModels / (name + ".json")).string()); }

struct Published {
  std::string name;
  std::int64_t parameters;
};

/// Every id of a linear layer, where it has one, names a parameter of the right size; in blocks of sub-layers, that of
/// all of them.
void check_linear(const Model& m, const Linear& l) {
  REQUIRE_FALSE(l.weight.is_none());
  const auto* t = std::get_if<Transformer>(&m.network);
  const std::int64_t ways = t && t->ways && m[l.weight].layer >= 0 ? t->ways->count : 1;
  CHECK(m[l.weight].elements() == ways * l.in * l.out);
  if (!l.bias.is_none()) CHECK(m[l.bias].elements() == ways * l.out);
}

void check_mlp(const Model& m, const Mlp& mlp) {
  if (mlp.gate) check_linear(m, *mlp.gate);
  check_linear(m, mlp.up);
  check_linear(m, mlp.down);
  CHECK(mlp.up.out == mlp.down.in);
}

void check_projections(const Model& m, const Attention& a) {
  if (const auto* s = std::get_if<StandardAttention>(&a.projections)) {
    if (s->fused) return check_linear(m, s->qkv);
    check_linear(m, s->q), check_linear(m, s->k), check_linear(m, s->v);
    CHECK(s->q.out == a.heads * a.qk_dim);
    CHECK(s->k.out == a.kv_heads * a.qk_dim);
    CHECK(s->v.out == a.kv_heads * a.v_dim);
    return;
  }
  const auto& l = std::get<LatentAttention>(a.projections);
  if (l.q_down) check_linear(m, *l.q_down);
  check_linear(m, l.q_up), check_linear(m, l.kv_down), check_linear(m, l.kv_up);
  CHECK(l.nope_dim + l.rope_dim == a.qk_dim);
}

void check_block(const Model& m, const Block& b) {
  check_projections(m, b.attention);
  check_linear(m, b.attention.out);
  CHECK(b.attention.out.in == b.attention.heads * b.attention.v_dim);
  if (b.cross) check_projections(m, *b.cross);
  if (const auto* mlp = std::get_if<Mlp>(&b.ffn)) return check_mlp(m, *mlp);
  const auto& moe = std::get<MoE>(b.ffn);
  check_linear(m, moe.router);
  CHECK(moe.router.out == static_cast<std::int64_t>(moe.experts.size()));
  for (const Mlp& e : moe.experts) check_mlp(m, e);
  if (moe.shared) check_mlp(m, *moe.shared);
}

}  // namespace

TEST_CASE("models have the published or hand-derived number of parameters", "[model]") {
  // gpt3-*, opt-30b and the megatrons: L·(12·h² + 13·h) + (V + P)·h + 2·h, with P = 2048 (opt: 2050).
  // gpt2: tables (50257 + 1024)·768 = 39,383,808; a block is 12·768² + 13·768 = 7,087,872, twelve of them 85,054,464;
  // the last norm 1,536; the head is tied. In all 124,439,808. llama-2-7b: embedding and head 2·32000·4096 =
  // 262,144,000; a block is 4·4096² + 3·4096·11008 + 2·4096 = 202,383,360, 32 of them 6,476,267,520; the last norm
  // 4,096. In all 6,738,415,616. mixtral-8x7b: embedding and head 262,144,000; a block has attention 2·4096² +
  // 2·4096·1024 = 41,943,040, a router of 32,768, experts 8·3·4096·14336 = 1,409,286,144 and norms 8,192:
  // 1,451,270,144, 32 of them 46,440,644,608; the last norm 4,096. opt-350m: tables 50272·512 + 2050·1024 = 27,838,464,
  // projections 2·512·1024, 24 blocks of 12,596,224, no last norm. t5-small: shared 32128·512; 6 encoder blocks of
  // 3,146,752, 6 decoder blocks of 4,195,840; two tables of 256, two norms of 512. t5-moe-1.2t: shared 32128·1024;
  // attention 16,777,216, once in each of 24 encoder and twice in each of 24 decoder blocks; half of either have
  // 2·1024·16384, the others 1536 times as much and a router of 1024·1536; norms 24·2 + 24·3 + 2 of 1024; tables of
  // 1,024. deepseek-v3: embedding and head 2·129280·7168 = 1,853,358,080; attention 187,107,328 in each of 61 layers,
  // of which 3 have 3·7168·18432 = 396,361,728 and 58 have 257·3·7168·2048 + 256·7168 + 256 = 11,320,164,608 more;
  // norms 61·2·7168 + 7168. llama-4-*: embedding and head 2·202048·5120 = 2,068,971,520; 48 layers have attention
  // 2·5120² + 2·5120·1024 = 62,914,560; norms 97·5120; an expert 3·5120·8192 = 125,829,120. scout: 17 of them and a
  // router of 16·5120 in each layer; maverick: 129 and 128·5120 in every second, 3·5120·16384 in the others. With
  // vision, 871,932,416 for both, Hugging Face counts 108,641,793,536 and 401,583,781,376. kraken-125m: tables
  // 51281·504 = 25,845,624; a layer 4·(8·504² + 11·504) = 8,150,688, twelve of them 97,808,256; the merge 4·504² =
  // 1,016,064; the last norm 1,008.
  const std::vector<Published> published = {
      {"gpt2", 124'439'808},
      {"gpt2-xl", 1'557'611'200},
      {"kraken-125m", 124'670'952},
      {"gpt3-175b", 174'604'259'328},
      {"gpt3-13b", 12'853'386'240},
      {"gpt3-6.7b", 6'658'404'352},
      {"megatron-530b", 529'600'819'200},
      {"megatron-1t", 1'008'038'758'400},
      {"opt-350m", 331'196'416},
      {"opt-30b", 29'974'540'288},
      {"bert-base-uncased", 109'514'298},
      {"bert-large-uncased", 335'174'458},
      {"t5-small", 60'506'624},
      {"t5-11b", 11'307'321'344},
      {"t5-moe-1.2t", 1'239'034'621'952},
      {"llama-2-7b", 6'738'415'616},
      {"llama-2-70b", 68'976'648'192},
      {"llama-3-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496},
      {"llama-3.1-405b", 405'853'388'800},
      {"llama-4-scout", 107'769'861'120},
      {"llama-4-maverick", 400'711'848'960},
      {"mistral-7b", 7'241'732'096},
      {"mixtral-8x7b", 46'702'792'704},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-32b", 32'762'123'264},
      {"deepseek-v2-lite", 15'706'484'224},
      {"deepseek-v3", 671'026'419'200},
      {"vit-base", 86'567'656},
      {"vit-large", 304'326'632},
      {"swin-base", 87'768'224},
  };
  for (const auto& [name, parameters] : published) {
    INFO(name);
    CHECK(shipped(name).parameter_count() == parameters);
  }
}

TEST_CASE("models that are served have the published number of parameters", "[model]") {
  // kimi-k2: embedding and head 2·163840·7168 = 2,348,810,240; attention of 64 heads 101,124,096 in each of 61 layers,
  // of which one has 3·7168·18432 and 60 have 385·3·7168·2048 + 384·7168 + 384 more; norms 61·2·7168 + 7168.
  CHECK(shipped("kimi-k2").parameter_count() == 1'026'408'232'448);
  // qwen3-235b-a22b: embedding and head 2·151936·4096; 94 layers of 2·4096·8192 + 2·4096·512 + 2·128 for attention,
  // 4096·128 + 128·3·4096·1536 for experts and 2·4096 for norms; the last norm 4,096.
  CHECK(shipped("qwen3-235b-a22b").parameter_count() == 235'093'634'560);
  // qwen3-8b: the same embedding; 36 layers of 2·4096² + 2·4096·1024 + 2·128 + 3·4096·12288 + 2·4096; the last norm.
  CHECK(shipped("qwen3-8b").parameter_count() == 8'190'735'360);
  // starcoder2-3b: embedding 49152·3072, tied; 30 layers of 2·(3072² + 3072) + 2·(3072·256 + 256) + 2·3072·12288 +
  // 12288 + 3072 + 4·3072; the last norm 2·3072.
  CHECK(shipped("starcoder2-3b").parameter_count() == 3'030'371'328);
}

TEST_CASE("Gemma and Granite have the published number of parameters", "[model]") {
  // gemma-2-*: embedding 256000·h, tied; a layer 2·h·q + 2·h·kv + 3·h·f for matrices, 4·h for norms; the last norm h.
  // 2b: h 2304, q 2048, kv 1024, f 9216, 26 layers; 9b: 3584, 4096, 2048, 14336, 42; 27b: 4608, 4096, 2048, 36864, 46.
  CHECK(shipped("gemma-2-2b").parameter_count() == 2'614'341'888);
  CHECK(shipped("gemma-2-9b").parameter_count() == 9'241'705'984);
  CHECK(shipped("gemma-2-27b").parameter_count() == 27'227'128'320);
  // gemma-3-1b: 262144·1152, 26 layers with q 1024, kv 256, f 6912, and two norms of 256 for queries and keys.
  CHECK(shipped("gemma-3-1b").parameter_count() == 999'885'952);
  // gemma-3-27b: 262208·5376 = 1,409,630,208; 62 layers with q 4096, kv 2048, f 21504: 412,898,560; the last norm. With
  // the vision encoder, 416,866,032, and the projection from it, 1152·5376 + 1152, Hugging Face counts 27,432,406,640.
  CHECK(shipped("gemma-3-27b").parameter_count() == 27'432'406'640 - 416'866'032 - 1152 * 5376 - 1152);
  // granite-3.1-8b: 49155·4096, tied; 40 layers of 2·4096² + 2·4096·1024 + 3·4096·12800 + 2·4096; the last norm.
  CHECK(shipped("granite-3.1-8b").parameter_count() == 8'170'848'256);
}

TEST_CASE("experts that are not chosen do not count as active", "[model]") {
  // mixtral-8x7b: 6 of 8 experts rest in 32 layers: 46,702,792,704 − 32·6·3·4096·14336 = 12,879,925,248.
  CHECK(shipped("mixtral-8x7b").active_parameter_count() == 12'879'925'248);
  // qwen3-30b-a3b: 120 of 128 rest in 48 layers: 30,532,122,624 − 48·120·3·2048·768 = 3,353,032,704.
  CHECK(shipped("qwen3-30b-a3b").active_parameter_count() == 3'353'032'704);
  // deepseek-v3: 248 of 256 rest in 58 layers: 671,026,419,200 − 58·248·3·7168·2048 = 37,552,297,472.
  CHECK(shipped("deepseek-v3").active_parameter_count() == 37'552'297'472);
  // llama-4-scout: 15 of 16 rest in 48 layers: 107,769,861,120 − 48·15·125,829,120 = 17,172,894,720.
  CHECK(shipped("llama-4-scout").active_parameter_count() == 17'172'894'720);
  CHECK(shipped("gpt2").active_parameter_count() == 124'439'808);
}

TEST_CASE("every shipped model loads, and its layers refer to parameters of their sizes", "[model]") {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    INFO(entry.path().string());
    const Model m = load_model(entry.path().string());
    CHECK(m.name == entry.path().stem().string());
    std::set<std::string> names;
    for (const Parameter& p : m.parameters) names.insert(p.name);
    CHECK(names.size() == m.parameters.size());
    CHECK_FALSE(show_model(m).empty());
    if (const auto* t = std::get_if<Transformer>(&m.network)) {
      for (const Block& b : t->encoder) check_block(m, b);
      for (const Block& b : t->decoder) check_block(m, b);
      if (t->head != Head::None) check_linear(m, t->output);
    }
    if (const auto* s = std::get_if<Swin>(&m.network))
      for (const SwinStage& stage : s->stages)
        for (const Block& b : stage.blocks) check_block(m, b);
  }
  CHECK(files >= 30);
}

TEST_CASE("every family has a shipped model", "[model]") {
  std::set<std::string> families;
  for (const auto& entry : std::filesystem::directory_iterator(kModels))
    if (entry.path().extension() == ".json") families.insert(load_model(entry.path().string()).family);
  // no published model of these two is shipped; their builders are those of qwen2 and qwen3_moe
  families.insert({"qwen3", "qwen2_moe"});
  for (const ModelFamily& f : model_families()) {
    INFO(f.name);
    CHECK(families.count(std::string{f.name}) == 1);
  }
}

TEST_CASE("parameters come in the order in which Hugging Face registers them", "[model]") {
  const auto names_of = [](const Model& m, std::size_t count) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) names.push_back(m.parameters[i].name);
    return names;
  };
  CHECK(names_of(shipped("gpt2-tiny"), 6) ==
        std::vector<std::string>{"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
                                 "transformer.h.0.ln_1.bias", "transformer.h.0.attn.c_attn.weight",
                                 "transformer.h.0.attn.c_attn.bias"});
  CHECK(names_of(shipped("llama-tiny"), 10) ==
        std::vector<std::string>{"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
                                 "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                                 "model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.gate_proj.weight",
                                 "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
                                 "model.layers.0.input_layernorm.weight",
                                 "model.layers.0.post_attention_layernorm.weight"});
  CHECK(shipped("llama-tiny").parameters.back().name == "lm_head.weight");
  CHECK(shipped("t5-tiny").parameters[5].name ==
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
}

TEST_CASE("GPT-2 starts its residual projections smaller", "[model]") {
  const Model m = shipped("gpt2");
  for (const Parameter& p : m.parameters) {
    INFO(p.name);
    const bool is_residual = p.name.find("c_proj.weight") != std::string::npos;
    if (p.init == Init::Normal) CHECK(p.deviation == Approx(is_residual ? 0.02 / std::sqrt(24.0) : 0.02));
    CHECK(p.decay == (p.shape.size() > 1));
  }
}
