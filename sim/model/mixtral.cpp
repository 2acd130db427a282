// SPDX-License-Identifier: Apache-2.0
#include "sim/model/decoder.hpp"
#include "sim/model/experts.hpp"

namespace orrery {

void build_mixtral(const BuildInput& input, Model& model) {
  ConfigReader& c = input.config;
  DecoderSettings s{.intermediate = 14336, .kv_heads = 8, .max_positions = 131072, .epsilon = 1e-5, .theta = 1e6};
  read_decoder(c, s);
  read_windows(c, WindowRule::WhenGiven, std::nullopt, s);
  read_ropes(c, s);
  ExpertSettings e{.experts = 8, .top_k = 2, .inner = s.intermediate};
  read_experts(c, s.layers, e);
  c.finish();

  ParameterSet p{model, c.config(), s.deviation};
  DecoderParts parts = with_grouped_attention(s, p);
  parts.ffn = [&](std::int64_t, const std::string& prefix) -> std::variant<Mlp, MoE> {
    return build_mixtral_experts(s, e, prefix + "block_sparse_moe.", p);
  };
  model.network = build_decoder(s, parts, p);
}

}  // namespace orrery
