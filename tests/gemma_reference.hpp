// SPDX-License-Identifier: Apache-2.0
// Gemma 2, Gemma 3 and Granite written out straight, in numbers that may carry a slope along, with nothing of the
// project: what plans must compute. By transformers' Gemma2ForCausalLM, Gemma3ForCausalLM and GraniteForCausalLM.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery::testing {

using std::exp, std::log, std::sqrt, std::tanh;

/// A number and its derivative by one weight.
struct Dual {
  double value = 0, slope = 0;
  Dual() = default;
  Dual(double v, double s = 0) : value{v}, slope{s} {}
};
inline Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
inline Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
inline Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
inline Dual operator/(Dual a, Dual b) { return {a.value / b.value, (a.slope - a.value / b.value * b.slope) / b.value}; }
inline Dual exp(Dual a) { return {std::exp(a.value), a.slope * std::exp(a.value)}; }
inline Dual log(Dual a) { return {std::log(a.value), a.slope / a.value}; }
inline Dual sqrt(Dual a) { return {std::sqrt(a.value), a.slope / (2 * std::sqrt(a.value))}; }
inline Dual tanh(Dual a) {
  const double t = std::tanh(a.value);
  return {t, a.slope * (1 - t * t)};
}

/// Sizes and constants of a network; 0 stands for none.
struct GemmaNetwork {
  int hidden, heads, kv_heads, dim, layers, inner, vocab;
  double epsilon = 1e-6, score_scale = 1, score_cap = 0, logit_cap = 0;
  int window = 0, period = 0;  // every `period`-th layer sees all tokens, the others `window`
  double theta = 1e4, local_theta = 1e4, stretch = 1;
  double embedding = 1, residual = 1, logits = 1;
  bool one_plus = true, norms_behind = true, qk_norm = false, gelu = true;
};

template <class S>
class StraightGemma {
 public:
  using Numbers = std::vector<S>;

  /// With `by`, slopes are those by its number `element`.
  StraightGemma(const GemmaNetwork& network, const std::map<std::string, std::vector<double>>& weights, int batch,
                int sequence, const std::string& by = {}, std::size_t element = 0)
      : n_{network}, sequence_{sequence}, rows_{batch * sequence} {
    for (const auto& [name, values] : weights) weights_[name] = Numbers(values.begin(), values.end());
    if constexpr (requires(S s) { s.slope; })
      if (!by.empty()) weights_.at(by)[element].slope = 1;
  }

  Numbers logits(const std::vector<std::int32_t>& tokens) const {
    const int h = n_.hidden;
    const Numbers& table = weights_.at("model.embed_tokens.weight");
    Numbers x;
    for (const std::int32_t t : tokens)
      for (int k = 0; k < h; ++k) x.push_back(table[t * h + k] * n_.embedding);
    for (int l = 0; l < n_.layers; ++l) {
      const std::string p = "model.layers." + std::to_string(l) + ".";
      const std::string before = n_.norms_behind ? "pre_feedforward_layernorm" : "post_attention_layernorm";
      add(x, attention(p + "self_attn.", l, norm(x, p + "input_layernorm", h)), p + "post_attention_layernorm");
      add(x, gated(p + "mlp.", norm(x, p + before, h)), p + "post_feedforward_layernorm");
    }
    Numbers y = product(norm(x, "model.norm", h), table, h, n_.vocab);
    for (S& v : y) {
      v = v / n_.logits;
      if (n_.logit_cap > 0) v = tanh(v / n_.logit_cap) * n_.logit_cap;
    }
    return y;
  }

  /// The mean of the cross-entropies of all rows.
  S loss(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets) const {
    const Numbers y = logits(tokens);
    S all = 0;
    for (int r = 0; r < rows_; ++r) {
      S sum = 0;
      for (int c = 0; c < n_.vocab; ++c) sum = sum + exp(y[r * n_.vocab + c]);
      all = all + (log(sum) - y[r * n_.vocab + targets[r]]) / rows_;
    }
    return all;
  }

 private:
  /// x·Wᵀ, W [out, in].
  Numbers product(const Numbers& x, const Numbers& w, int in, int out) const {
    const int rows = static_cast<int>(x.size()) / in;
    Numbers y(static_cast<std::size_t>(rows * out));
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < out; ++c) {
        S sum = 0;
        for (int k = 0; k < in; ++k) sum = sum + x[r * in + k] * w[c * in + k];
        y[r * out + c] = sum;
      }
    return y;
  }
  Numbers product(const Numbers& x, const std::string& name, int in, int out) const {
    return product(x, weights_.at(name + ".weight"), in, out);
  }

  Numbers norm(Numbers x, const std::string& name, int width) const {
    const Numbers& w = weights_.at(name + ".weight");
    for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(width)) {
      S square = 0;
      for (int k = 0; k < width; ++k) square = square + x[first + k] * x[first + k] / width;
      const S root = sqrt(square + n_.epsilon);
      for (int k = 0; k < width; ++k) x[first + k] = x[first + k] / root * (n_.one_plus ? w[k] + 1 : w[k]);
    }
    return x;
  }

  void add(Numbers& x, Numbers y, const std::string& name) const {
    if (n_.norms_behind) y = norm(y, name, n_.hidden);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] + y[i] * n_.residual;
  }

  Numbers gated(const std::string& p, const Numbers& x) const {
    const Numbers gate = product(x, p + "gate_proj", n_.hidden, n_.inner);
    Numbers z = product(x, p + "up_proj", n_.hidden, n_.inner);
    for (std::size_t i = 0; i < z.size(); ++i) {
      const S g = gate[i], curve = g + g * g * g * 0.044715;
      z[i] = z[i] * (n_.gelu ? g * 0.5 * (tanh(curve * std::sqrt(2 / M_PI)) + 1) : g / (exp(g * -1) + 1));
    }
    return product(z, p + "down_proj", n_.inner, n_.hidden);
  }

  bool is_local(int layer) const { return n_.period > 0 && (layer + 1) % n_.period != 0; }

  /// Numbers i and i + d/2 of a head turn by p·θ^(−2i/d).
  void turn(Numbers& x, int heads, bool local) const {
    const int d = n_.dim, half = d / 2;
    for (std::size_t head = 0; head < x.size() / d; ++head) {
      const int position = static_cast<int>(head) / heads % sequence_;
      for (int i = 0; i < half; ++i) {
        const double angle =
            position * std::pow(local ? n_.local_theta : n_.theta, -2.0 * i / d) / (local ? 1 : n_.stretch);
        S &a = x[head * d + i], &b = x[head * d + i + half];
        const S turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
    }
  }

  Numbers attention(const std::string& p, int layer, const Numbers& x) const {
    const int q_width = n_.heads * n_.dim, kv_width = n_.kv_heads * n_.dim;
    Numbers q = product(x, p + "q_proj", n_.hidden, q_width), k = product(x, p + "k_proj", n_.hidden, kv_width);
    const Numbers v = product(x, p + "v_proj", n_.hidden, kv_width);
    if (n_.qk_norm) q = norm(q, p + "q_norm", n_.dim), k = norm(k, p + "k_norm", n_.dim);
    turn(q, n_.heads, is_local(layer));
    turn(k, n_.kv_heads, is_local(layer));
    Numbers o(q.size(), S(0));
    for (int r = 0; r < rows_; ++r)
      for (int head = 0; head < n_.heads; ++head) attend(q, k, v, r, head, is_local(layer), o);
    return product(o, p + "o_proj", q_width, n_.hidden);
  }

  void attend(const Numbers& q, const Numbers& k, const Numbers& v, int r, int head, bool local, Numbers& o) const {
    const int i = r % sequence_, first = r - i, from = local ? std::max(0, i - n_.window + 1) : 0;
    const int q_at = (r * n_.heads + head) * n_.dim, other = head * n_.kv_heads / n_.heads;
    Numbers weights;
    S sum = 0;
    for (int j = from; j <= i; ++j) {
      S dot = 0;
      for (int c = 0; c < n_.dim; ++c) dot = dot + q[q_at + c] * k[((first + j) * n_.kv_heads + other) * n_.dim + c];
      S score = dot * n_.score_scale;
      if (n_.score_cap > 0) score = tanh(score / n_.score_cap) * n_.score_cap;
      weights.push_back(exp(score));
      sum = sum + weights.back();
    }
    for (int j = from; j <= i; ++j)
      for (int c = 0; c < n_.dim; ++c)
        o[q_at + c] = o[q_at + c] + weights[j - from] / sum * v[((first + j) * n_.kv_heads + other) * n_.dim + c];
  }

  const GemmaNetwork n_;
  int sequence_, rows_;
  std::map<std::string, Numbers> weights_;
};

}  // namespace orrery::testing
