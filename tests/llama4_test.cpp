// SPDX-License-Identifier: Apache-2.0
// Llama 4's language model written out straight, as transformers' Llama4ForCausalLM computes it: what plans must
// compute.
#include <catch2/catch.hpp>

#include <cmath>

#include "tests/network_testing.hpp"
#include "tests/reference_networks.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// scenarios/models/llama4-tiny.json
constexpr ReferenceSizes kSizes{
    .batch = 2, .sequence = 19, .hidden = 64, .heads = 4, .kv_heads = 2, .layers = 4, .inner = 64, .vocab = 4096};
constexpr int kDim = 16, kDense = 128, kExperts = 8, kChunk = 6, kSpan = 4;
constexpr double kEpsilon = 1e-5, kScale = 0.1, kTheta = 10000;

class Llama4Reference {
 public:
  explicit Llama4Reference(const Values& weights) : w{weights} {}

  Vec logits(const std::vector<std::int32_t>& tokens) const {
    Vec x(static_cast<std::size_t>(n * h));
    for (int r = 0; r < n; ++r)
      for (int k = 0; k < h; ++k) x[r * h + k] = at("embed_tokens")[tokens[r] * h + k];
    for (int l = 0; l < kSizes.layers; ++l) {
      const std::string p = "layers." + std::to_string(l) + ".";
      add_to(x, attention(p + "self_attn.", l, normed(x, at(p + "input_layernorm"), nullptr, n, h, kEpsilon)));
      const Vec b = normed(x, at(p + "post_attention_layernorm"), nullptr, n, h, kEpsilon);
      add_to(x, l % 2 == 1 ? experts(p + "feed_forward.", b) : gated(p + "feed_forward.", b, n, kDense));
    }
    return affine(normed(x, at("norm"), nullptr, n, h, kEpsilon), w.at("lm_head.weight"), nullptr, n, h, kSizes.vocab,
                  true);
  }

 private:
  const Vec& at(const std::string& name) const { return w.at("model." + name + ".weight"); }

  Vec gated(const std::string& p, const Vec& x, int rows, int inner) const {
    const Vec gate = affine(x, at(p + "gate_proj"), nullptr, rows, h, inner, true);
    Vec z = affine(x, at(p + "up_proj"), nullptr, rows, h, inner, true);
    for (std::size_t i = 0; i < z.size(); ++i) z[i] *= gate[i] / (1 + std::exp(-gate[i]));
    return affine(z, at(p + "down_proj"), nullptr, rows, inner, h, true);
  }

  /// Each token's best expert reads the token times the sigmoid of its logit; a shared one reads all as they are.
  Vec experts(const std::string& p, const Vec& x) const {
    Vec out = gated(p + "shared_expert.", x, n, kSizes.inner);
    const Vec scores = affine(x, at(p + "router"), nullptr, n, h, kExperts, true);
    for (int r = 0; r < n; ++r) {
      const auto row = scores.begin() + r * kExperts;
      const auto best = std::max_element(row, row + kExperts);
      Vec in(x.begin() + r * h, x.begin() + (r + 1) * h);
      for (double& v : in) v /= 1 + std::exp(-*best);
      const Vec y = gated(p + "experts." + std::to_string(best - row) + ".", in, 1, kSizes.inner);
      for (int k = 0; k < h; ++k) out[r * h + k] += y[k];
    }
    return out;
  }

  /// Pairs (2i, 2i + 1) turn by p·θ^(−2i/d), behind which each head is divided by the root of its mean square.
  static void turn_and_norm(Vec& x, int heads) {
    for (std::size_t head = 0; head < x.size() / kDim; ++head) {
      const int position = static_cast<int>(head) / heads % kSizes.sequence;
      double* v = &x[head * kDim];
      double square = 0;
      for (int i = 0; i < kDim; i += 2) {
        const double angle = position * std::pow(kTheta, -double(i) / kDim), a = v[i], b = v[i + 1];
        v[i] = a * std::cos(angle) - b * std::sin(angle);
        v[i + 1] = a * std::sin(angle) + b * std::cos(angle);
        square += a * a + b * b;
      }
      for (int i = 0; i < kDim; ++i) v[i] /= std::sqrt(square / kDim + kEpsilon);
    }
  }

  /// Every fourth layer sees all tokens, has no positions, and its queries grow; the others see those of their chunk.
  Vec attention(const std::string& p, int layer, const Vec& x) const {
    const int q_width = kSizes.heads * kDim, kv_width = kSizes.kv_heads * kDim;
    Vec q = affine(x, at(p + "q_proj"), nullptr, n, h, q_width, true);
    Vec k = affine(x, at(p + "k_proj"), nullptr, n, h, kv_width, true);
    const Vec v = affine(x, at(p + "v_proj"), nullptr, n, h, kv_width, true);
    const bool whole = layer % 4 == 3;
    if (!whole) turn_and_norm(q, kSizes.heads), turn_and_norm(k, kSizes.kv_heads);
    Vec o(q.size(), 0.0);
    for (int r = 0; r < n; ++r)
      for (int head = 0; head < kSizes.heads; ++head) {
        const int i = r % kSizes.sequence, first = r - i, from = whole ? 0 : i / kChunk * kChunk;
        const double growth = whole ? 1 + kScale * std::log(1 + std::floor((i + 1.0) / kSpan)) : 1;
        const int other = head * kSizes.kv_heads / kSizes.heads * kDim;
        Vec scores;
        double sum = 0;
        for (int j = from; j <= i; ++j) {
          double dot = 0;
          for (int c = 0; c < kDim; ++c)
            dot += q[r * q_width + head * kDim + c] * k[(first + j) * kv_width + other + c];
          scores.push_back(std::exp(growth * dot / std::sqrt(double(kDim))));
          sum += scores.back();
        }
        for (int j = from; j <= i; ++j)
          for (int c = 0; c < kDim; ++c)
            o[r * q_width + head * kDim + c] += scores[j - from] / sum * v[(first + j) * kv_width + other + c];
      }
    return affine(o, at(p + "o_proj"), nullptr, n, q_width, h, true);
  }

  const Values& w;
  const int n = kSizes.batch * kSizes.sequence, h = kSizes.hidden;
};

}  // namespace

TEST_CASE("Llama 4's plan computes what the straight-line implementation does", "[parity]") {
  const Model model = load_model(shipped_model("llama4-tiny"));
  InferOptions o;
  o.batch = kSizes.batch, o.sequence = kSizes.sequence;
  o.dtype = Precision::F64;
  const Plan plan = single()->inference(model, o, &host_workspaces());
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 5, 0.2);
  Values w;
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    w[model.parameters[i].name] = executor->read(plan, plan.find_placement(ParameterId{i})->weight.tensor, RankId{0});
  Random random{23};
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < kSizes.batch * kSizes.sequence; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.below(kSizes.vocab)));
  put(*executor, plan, {{"tokens", tokens, {}}});
  executor->execute(plan, {});
  const std::vector<double> logits = read_port(*executor, plan, "logits");
  CHECK(largest_difference(logits, Llama4Reference{w}.logits(tokens)) < 1e-12);
}
