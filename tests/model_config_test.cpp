// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/model/load.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

Model load_text(const std::string& json) { return model_from_config(parse_json(json, "c.json"), "test"); }

std::string load_error(const std::string& json) {
  return user_error([&] { load_text(json); });
}

/// The first message, without place, line and hint.
std::string message(const std::string& json) {
  try {
    load_text(json);
  } catch (const UserError& e) {
    return e.diagnostics().front().message;
  }
  return "no error";
}

const Transformer& transformer(const Model& m) { return std::get<Transformer>(m.network); }

const std::string kLlama =
    R"("model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,)"
    R"( "num_attention_heads": 4,)"
    R"( "vocab_size": 100)";

std::string llama(const std::string& more) { return "{" + kLlama + ", " + more + "}"; }

std::vector<double> frequencies(const std::string& json) {
  return transformer(load_text(json)).decoder[0].attention.rope->inverse_frequencies;
}

}  // namespace

TEST_CASE("absent keys take the defaults of the family", "[model]") {
  CHECK(load_text(R"({"model_type": "gpt2"})").parameter_count() == 124'439'808);
  CHECK(load_text(R"({"model_type": "t5"})").parameter_count() == 60'506'624);
  CHECK(load_text(R"({"architectures": ["LlamaForCausalLM"]})").parameter_count() == 6'738'415'616);
  CHECK(load_text(R"({"model_type": "deepseek_v3"})").parameter_count() == 671'026'419'200);
  CHECK(load_text(R"({"model_type": "mixtral"})").parameter_count() == 46'702'792'704);
  CHECK(load_text(R"({"model_type": "gemma"})").parameter_count() == 8'537'680'896);
  CHECK(load_text(R"({"model_type": "gemma2"})").parameter_count() == 2'614'341'888);
  // mistral's default window is 4096, and null means none
  CHECK(transformer(load_text(R"({"model_type": "mistral"})")).decoder[0].attention.window == 4096);
  CHECK_FALSE(
      transformer(load_text(R"({"model_type": "mistral", "sliding_window": null})")).decoder[0].attention.window);
}

TEST_CASE("the first architecture decides about pooler and head", "[model]") {
  // BertModel: 109,514,298 of BertForMaskedLM − transform 590,592 − norm 1,536 − bias 30,522 + pooler 590,592 =
  // 109,482,240.
  const Model bert = load_text(R"({"model_type": "bert", "architectures": ["BertModel"]})");
  CHECK(bert.parameter_count() == 109'482'240);
  CHECK(transformer(bert).head == Head::None);
  CHECK(transformer(bert).pooler);
  CHECK(bert.parameters[0].name == "embeddings.word_embeddings.weight");
  // ViTModel: 86,567,656 − classifier 768·1000 + 1000 + pooler 590,592 = 86,389,248.
  CHECK(load_text(R"({"model_type": "vit", "architectures": ["ViTModel"]})").parameter_count() == 86'389'248);
  // classes by number or by name
  const auto labels = [](const std::string& more) {
    return transformer(load_text(R"({"model_type": "vit")" + more + "}")).output.out;
  };
  CHECK(labels("") == 2);
  CHECK(labels(R"(, "num_labels": 7)") == 7);
  CHECK(labels(R"(, "id2label": {"0": "cat", "1": "dog", "2": "owl"})") == 3);
}

TEST_CASE("transformers v4 and v5 spellings mean the same", "[model]") {
  const std::string v4 =
      llama(R"("rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 2.0}, "torch_dtype": "bfloat16")");
  const std::string v5 =
      llama(R"("rope_parameters": {"rope_theta": 5000.0, "rope_type": "linear", "factor": 2.0}, "dtype": "bfloat16")");
  CHECK(frequencies(v4) == frequencies(v5));
  CHECK(load_text(v4).dtype == DType::BF16);
  CHECK(load_text(v5).dtype == DType::BF16);
  // 16 dimensions per head: f_i = 5000^(-2i/16) / 2
  CHECK(frequencies(v4).size() == 8);
  CHECK(frequencies(v4)[0] == 0.5);
  CHECK(frequencies(v4)[4] == Approx(std::pow(5000.0, -0.5) / 2));
  // per type of layer
  const std::string nested =
      llama(R"("rope_parameters": {"full_attention": {"rope_theta": 5000.0, "rope_type": "default"}})");
  CHECK(frequencies(nested)[4] == Approx(std::pow(5000.0, -0.5)));
}

TEST_CASE("the language part of a multimodal configuration is read", "[model]") {
  const Model m = load_text(R"({"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"],
                                "text_config": {)" +
                            kLlama + "}}");
  CHECK(m.family == "llama");
  CHECK(transformer(m).decoder.size() == 2);
}

TEST_CASE("llama3 scaling slows long waves and keeps short ones", "[model]") {
  // 128 dimensions, theta 500000, factor 8, low 1, high 4, original 8192: f_0 = 1 turns 8192/2π = 1304 > 4 times, so it
  // stays; the last, 500000^(-126/128) = 2.455e-6, turns 0.0032 < 1 times, so it is divided by 8.
  const Model m = load_model(std::string{ORRERY_SOURCE_DIR} + "/scenarios/models/llama-3.1-405b.json");
  const auto& f = transformer(m).decoder[0].attention.rope->inverse_frequencies;
  CHECK(f.size() == 64);
  CHECK(f[0] == 1.0);
  CHECK(f[63] == Approx(std::pow(500000.0, -126.0 / 128) / 8));
  // i = 30: f = 500000^(-60/128) = 0.0021316 turns 2.779 times: keep (2.779 − 1)/3 = 0.593 of it, divide the rest by 8.
  const double plain = std::pow(500000.0, -60.0 / 128), turns = 8192 * plain / (2 * M_PI), keep = (turns - 1) / 3;
  CHECK(turns == Approx(2.779).epsilon(0.001));
  CHECK(f[30] == Approx(keep * plain + (1 - keep) * plain / 8));
}

TEST_CASE("DeepSeek's yarn blends frequencies and scales the scores", "[model]") {
  const Model m = load_model(std::string{ORRERY_SOURCE_DIR} + "/scenarios/models/deepseek-v2-lite.json");
  const Attention& a = transformer(m).decoder[0].attention;
  // mscale and mscale_all_dim are equal, so cos and sin keep their size; the scores get (0.1·0.707·ln 40 + 1)²
  // = 1.5897.
  CHECK(a.rope->attention_factor == Approx(1.0));
  CHECK(a.rope->interleaved);
  CHECK(a.scale * std::sqrt(192.0) == Approx(std::pow(0.0707 * std::log(40.0) + 1, 2)));
  // 64 dimensions: 32 turns of 4096 at dimension 64·ln(4096/(32·2π))/(2·ln 10000) = 10.47, one turn at 22.5: up to pair
  // 10 as it was, from pair 23 on divided by 40.
  const auto& f = a.rope->inverse_frequencies;
  CHECK(f[10] == Approx(std::pow(10000.0, -20.0 / 64)));
  CHECK(f[11] < 0.99 * std::pow(10000.0, -22.0 / 64));
  CHECK(f[23] == Approx(std::pow(10000.0, -46.0 / 64) / 40));
}

TEST_CASE("T5 blocks share the table of relative positions of their stack", "[model]") {
  const Model m = load_text(R"({"model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false})");
  const Transformer& t = transformer(m);
  const ParameterId table = t.encoder[0].attention.relative_bias->table;
  for (const Block& b : t.encoder) CHECK(b.attention.relative_bias->table == table);
  for (const Block& b : t.decoder) CHECK(b.attention.relative_bias->table != table);
  CHECK_FALSE(t.decoder[0].cross->relative_bias);
  CHECK(t.encoder[0].attention.relative_bias->bidirectional);
  CHECK_FALSE(t.decoder[0].attention.relative_bias->bidirectional);
  CHECK(std::get<Mlp>(t.encoder[0].ffn).gate);
  CHECK(t.output_scale == 1.0);
  CHECK_FALSE(t.tied);
  CHECK(transformer(load_text(R"({"model_type": "t5"})")).output_scale == Approx(1 / std::sqrt(512.0)));
}

TEST_CASE("Qwen's layers choose windows and experts", "[model]") {
  const Model m =
      load_text(R"({"model_type": "qwen2_moe", "num_hidden_layers": 4, "decoder_sparse_step": 2, "num_experts": 3,
      "num_experts_per_tok": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 10,
      "intermediate_size": 8, "moe_intermediate_size": 4, "shared_expert_intermediate_size": 6,
      "use_sliding_window": true,
      "sliding_window": 16, "max_window_layers": 3})");
  const auto& blocks = transformer(m).decoder;
  CHECK(std::holds_alternative<Mlp>(blocks[0].ffn));
  CHECK(std::holds_alternative<MoE>(blocks[1].ffn));
  CHECK(std::get<MoE>(blocks[3].ffn).shared_gate->out == 1);
  CHECK_FALSE(std::get<MoE>(blocks[3].ffn).normalise);
  CHECK_FALSE(blocks[2].attention.window);
  CHECK(blocks[3].attention.window == 16);
  const auto& qkv = std::get<StandardAttention>(blocks[0].attention.projections);
  CHECK_FALSE(qkv.q.bias.is_none());
  CHECK(blocks[0].attention.out.bias.is_none());

  const Model third = load_text(R"({"model_type": "qwen3", "num_hidden_layers": 2, "vocab_size": 10,
      "layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": true, "sliding_window": 8})");
  CHECK(std::get<StandardAttention>(transformer(third).decoder[0].attention.projections).q_norm->dim == 128);
  CHECK_FALSE(transformer(third).decoder[0].attention.window);
  CHECK(transformer(third).decoder[1].attention.window == 8);
}

TEST_CASE("Gemma's layers choose windows, rotary bases and bounds", "[model]") {
  const Model two =
      load_text(R"({"model_type": "gemma2", "query_pre_attn_scalar": 144, "attn_logit_softcapping": null})");
  const auto& blocks = transformer(two).decoder;
  CHECK(blocks[0].attention.window == 4096);
  CHECK_FALSE(blocks[1].attention.window);
  CHECK(blocks[0].attention.scale == Approx(1.0 / 12));
  CHECK_FALSE(blocks[0].attention.cap);
  CHECK(transformer(two).logit_cap == 30.0);
  CHECK(transformer(two).embedding_scale == 48.0);
  CHECK(blocks[0].attention_norm.kind == NormKind::RmsOnePlus);
  CHECK(two[blocks[0].ffn_out_norm->weight].name == "model.layers.0.post_feedforward_layernorm.weight");
  CHECK(two[blocks[0].ffn_out_norm->weight].init == Init::Zeros);

  // Every sixth layer sees all; of a head of 256 numbers the second pair turns by θ^(−2/256), over 8 where all is seen.
  const std::string scaled = R"({"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}})";
  // The same as transformers v5 writes it.
  const std::string parts = R"({"model_type": "gemma3_text", "rope_theta": 1000000, "rope_local_base_freq": 10000,
    "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0},
                        "sliding_attention": {"rope_type": "default"}}})";
  for (const std::string& text : {scaled, parts}) {
    const Model three = load_text(text);
    const auto& layers = transformer(three).decoder;
    CHECK(layers[4].attention.window == 4096);
    CHECK_FALSE(layers[5].attention.window);
    CHECK(layers[4].attention.rope->inverse_frequencies[1] == Approx(std::pow(1e4, -2.0 / 256)));
    CHECK(layers[5].attention.rope->inverse_frequencies[1] == Approx(std::pow(1e6, -2.0 / 256) / 8));
    CHECK(std::get<StandardAttention>(layers[0].attention.projections).q_norm->kind == NormKind::RmsOnePlus);
  }
  // One whose document says the type of the weights, as those with a vision encoder do.
  const Model text = load_text(R"({"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": {
    "model_type": "gemma3_text", "num_hidden_layers": 3, "sliding_window_pattern": 2, "sliding_window": 7}})");
  CHECK(text.dtype == DType::BF16);
  CHECK(text.family == "gemma3_text");
  CHECK(transformer(text).decoder[2].attention.window == 7);
  CHECK_FALSE(transformer(text).decoder[1].attention.window);
}

TEST_CASE("Granite's factors are read, each to its place", "[model]") {
  const Model m = load_text(R"({"model_type": "granite", "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
    "attention_multiplier": 0.0078125, "logits_scaling": 16.0})");
  CHECK(transformer(m).embedding_scale == 12.0);
  CHECK(transformer(m).output_scale == 1.0 / 16);
  CHECK(transformer(m).decoder[0].residual_scale == 0.22);
  CHECK(transformer(m).decoder[0].attention.scale == 0.0078125);
  CHECK(message(R"({"model_type": "granite", "logits_scaling": 0})") ==
        "logits_scaling must be a number from 1e-09 to 1000000000, not 0");
}

TEST_CASE("an impossible value is reported at its place", "[model][error]") {
  CHECK(load_error("{\"model_type\": \"gpt2\",\n \"n_layer\": 1000000000000000000}") ==
        "c.json:2:13: n_layer must be a whole number from 1 to 4096, not 1000000000000000000\n"
        "  \"n_layer\": 1000000000000000000}\n"
        "             ^");
  CHECK(message(R"({"model_type": "gpt2", "n_embd": -4})") ==
        "n_embd must be a whole number from 1 to 1073741824, not -4");
  CHECK(message(R"({"model_type": "gpt2", "n_embd": 0})") ==
        "n_embd must be a whole number from 1 to 1073741824, not 0");
  CHECK(message(R"({"model_type": "gpt2", "n_embd": 1.5})") ==
        "n_embd must be a whole number from 1 to 1073741824, not 1.5");
  CHECK(message(R"({"model_type": "gpt2", "n_embd": "768"})") ==
        "n_embd must be a whole number from 1 to 1073741824, not \"768\"");
  CHECK(message(R"({"model_type": "gpt2", "n_embd": [1]})") ==
        "n_embd must be a whole number from 1 to 1073741824, not a list");
  CHECK(message(R"({"model_type": "gpt2", "layer_norm_epsilon": 1e999})") ==
        "layer_norm_epsilon must be a number from 0 to 1, not 1e999");
  CHECK(message(R"({"model_type": "gpt2", "tie_word_embeddings": 1})") ==
        "tie_word_embeddings must be true or false, not 1");
  CHECK(message(R"({"model_type": "gpt2", "activation_function": ["x"]})") ==
        "activation_function must be a text, not a list");
  CHECK(message(llama(R"("num_key_value_heads": 3)")) == "num_key_value_heads 3 does not divide num_attention_heads 4");
  CHECK(message(llama(R"("hidden_size_": 1, "head_dim": 15)")) ==
        "rotary positions need an even number of dimensions per head, not 15");
  CHECK(message(R"({"model_type": "gpt2", "n_embd": 770})") == "n_head 12 does not divide n_embd 770");
  CHECK(message(R"({"model_type": "vit", "patch_size": 15})") == "patch_size 15 does not divide image_size 224");
  CHECK(message(R"({"model_type": "mixtral", "num_experts_per_tok": 9})") == "a token cannot visit 9 experts of 8");
  CHECK(message(R"({"model_type": "mixtral", "num_local_experts": 100000})") ==
        "100000 experts in 32 layers are more than 262144 in all");
  CHECK(message(R"({"model_type": "deepseek_v3", "topk_group": 0})") ==
        "topk_group must be a whole number from 1 to 1073741824, not 0");
  CHECK(message(R"({"model_type": "deepseek_v3", "n_group": 128, "topk_group": 2})") ==
        "2 of 128 groups cannot give 8 experts");
  CHECK(message(R"({"model_type": "deepseek_v3", "n_group": 7})") == "n_group 7 does not divide num_local_experts 256");
  CHECK(message(R"({"model_type": "deepseek_v2", "topk_method": "best"})") == "topk_method 'best' is not supported");
}

TEST_CASE("what a family does not support is said", "[model][error]") {
  CHECK(message(llama(R"("rope_scaling": {"type": "longrope"})")) == "rope type 'longrope' is not supported");
  CHECK(message(llama(R"("rope_scaling": "yarn")")) == "rope_parameters must be a map");
  CHECK(message(llama(R"("rope_scaling": {"factor": "two"})")) ==
        "factor must be a number from 1e-06 to 1000000000000, not \"two\"");
  CHECK(message(R"({"model_type": "mistral", "layer_types": ["full_attention"]})") ==
        "layer_types must be a list with one entry for each of the 32 layers");
  CHECK(message(R"({"model_type": "mistral", "num_hidden_layers": 1, "layer_types": ["linear_attention"]})") ==
        "layer type 'linear_attention' of layer 0 is not supported");
  CHECK(message(R"({"model_type": "swin", "depths": [2, 2]})") == "depths has 2 stages, num_heads has 4");
  CHECK(message(R"({"model_type": "swin", "window_size": 5})") ==
        "window_size 5 does not divide the 56 patches per side of stage 0");
  CHECK(message(R"({"model_type": "swin", "num_heads": [5, 6, 12, 24]})") ==
        "5 heads of stage 0 do not divide its width 96");
  CHECK(message(R"({"model_type": "swin", "depths": 3})") == "depths must be a list of at most 8 whole numbers");
  CHECK(message(R"({"model_type": "swin", "image_size": 28})") ==
        "stage 0 has 7 patches per side, which cannot be halved");
  CHECK(message(R"({"model_type": "swin", "use_absolute_embeddings": true})") ==
        "absolute position embeddings are not supported");
  CHECK(message(R"({"model_type": "bert", "position_embedding_type": "relative_key"})") ==
        "position_embedding_type 'relative_key' is not supported");
  CHECK(message(R"({"model_type": "opt", "layer_norm_elementwise_affine": false})") ==
        "norms without weights are not supported");
  CHECK(message(R"({"model_type": "gpt2", "add_cross_attention": true})") ==
        "cross-attention is not supported in this family");
  CHECK(message(llama(R"("num_attention_heads_": 1, "hidden_size__": 2)")) == "no error");
}

TEST_CASE("a width per head is bounded", "[model][error]") {
  CHECK(message(R"({"model_type": "llama", "hidden_size": 1048576, "num_attention_heads": 1})") ==
        "1048576 dimensions per head are more than 4096");
}

TEST_CASE("more than 2^53 parameters are refused before memory is spent", "[model][error]") {
  CHECK(message(R"({"model_type": "gpt2", "n_embd": 1073741824, "n_head": 1, "vocab_size": 1073741824})") ==
        "the model has more than 2^53 parameters, counted up to 'transformer.wte.weight'");
  // 2^53 is 8192·2^40, a block of width 2^20 is 12·2^40: 682 of them are 8184, and the attention of the next makes 8188
  CHECK(message(R"({"model_type": "gpt2", "n_embd": 1048576, "n_head": 1, "n_layer": 4096})") ==
        "the model has more than 2^53 parameters, counted up to 'transformer.h.682.mlp.c_fc.weight'");
}

TEST_CASE("all problems of a configuration are reported at once", "[model][error]") {
  try {
    load_text(R"({"model_type": "gpt2", "n_layer": 0, "n_head": -1, "vocab_size": null})");
    FAIL("no error");
  } catch (const UserError& e) {
    CHECK(e.diagnostics().size() == 2);
  }
}

TEST_CASE("a network that would be read as another one is refused by the key that tells", "[model][error]") {
  // DeepSeek-V3.2 under the name of V3, whose attention it has not; a key that says nothing new is none.
  const std::string v3 = R"({"model_type": "deepseek_v3", )";
  CHECK(load_error(v3 + R"("index_topk": 2048})") ==
        "c.json:1:31: index_topk: no network here has attention to the tokens that an indexer chooses (DeepSeek-V3.2)\n"
        "  {\"model_type\": \"deepseek_v3\", \"index_topk\": 2048}\n"
        "                                ^");
  CHECK_THAT(load_error(R"({"model_type": "mixtral", "interleave_moe_layer_step": 2})"),
             Catch::Contains("interleave_moe_layer_step: no other network here has layers of experts between dense"));
  CHECK_THAT(load_error(R"({"model_type": "llama", "no_rope_layers": [1, 1, 1, 0]})"),
             Catch::Contains("no_rope_layers: "));
  CHECK_THAT(load_error(R"({"model_type": "llama", "residual_multiplier": 0.22})"),
             Catch::Contains("scaled residuals"));
  CHECK(load_error(R"({"model_type": "gemma3_text", "attn_logit_softcapping": 50.0})") ==
        "c.json:1:31: attn_logit_softcapping: no other network here has bounded scores of attention (Gemma 2)\n"
        "  {\"model_type\": \"gemma3_text\", \"attn_logit_softcapping\": 50.0}\n"
        "                                ^");
  CHECK_THAT(load_error(R"({"model_type": "gemma3_text", "use_bidirectional_attention": true})"),
             Catch::Contains("use_bidirectional_attention: no network here has attention to what follows"));
  CHECK(load_text(R"({"model_type": "llama", "residual_multiplier": 1.0, "attention_chunk_size": null,
                      "final_logit_softcapping": null, "no_rope_layers": [], "interleave_moe_layer_step": 1})")
            .family == "llama");
}

TEST_CASE("unknown families, classes, types and activations name the known ones", "[model][error]") {
  CHECK(message(R"({"model_type": "lama"})").substr(0, 58) ==
        "unknown model_type 'lama'; did you mean 'llama'? known mod");
  CHECK(load_error(R"({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]})") ==
        "c.json:1:42: architecture 'LlamaForSequenceClassification' is not supported for model_type 'llama'\n"
        "  {\"model_type\": \"llama\", \"architectures\": [\"LlamaForSequenceClassification\"]}\n"
        "                                           ^\n"
        "  hint: known architectures: LlamaForCausalLM, LLaMAForCausalLM");
  CHECK(message("{}") == "the configuration has no model_type");
  CHECK(message("[]") == "a model configuration must be a map of keys");
  CHECK(message(R"({"model_type": "llama", "architectures": []})") == "architectures must be a list of class names");
  CHECK(message(llama(R"("torch_dtype": "float31")")).substr(0, 48) ==
        "unknown dtype 'float31'; did you mean 'float32'?");
  CHECK(message(llama(R"("hidden_act": "sillu")")).substr(0, 49) ==
        "unknown activation 'sillu'; did you mean 'silu'? ");
}

TEST_CASE("our own DLRM schema knows its keys", "[model][error]") {
  const std::string tables = R"("model_type": "dlrm", "table_sizes": [10, 20, 30])";
  // tables 60·16; bottom 13→512→256→16: 7,168 + 131,328 + 4,112; interactions 16 + 4·3/2 = 22; top 22→512→256→1:
  // 11,776 + 131,328 + 257. In all 960 + 142,608 + 143,361 = 286,929.
  const Model m = load_text("{" + tables + "}");
  CHECK(m.parameter_count() == 286'929);
  CHECK(std::get<Dlrm>(m.network).top[0].in == 22);
  CHECK(m.parameters[5].name == "bot_l.2.weight");
  CHECK(message("{" + tables + R"(, "botom_mlp": [16]})").substr(0, 54) ==
        "unknown key 'botom_mlp'; did you mean 'bottom_mlp'? kn");
  CHECK(message(R"({"model_type": "dlrm"})") == "a recommendation model needs at least one embedding table");
  CHECK(message("{" + tables + R"(, "bottom_mlp": [8]})") == "the last width of bottom_mlp must be embedding_dim, 16");
  CHECK(message("{" + tables + R"(, "top_mlp": [8]})") == "the last width of top_mlp must be 1, the logit");
}
