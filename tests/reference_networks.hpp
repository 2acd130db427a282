// SPDX-License-Identifier: Apache-2.0
// GPT-2 and Llama written out straight, forward and backward, in double, with nothing of the project: what the plans
// must compute. Weights are a map from the checkpoint's names to row-major values; gradients come back under the same
// names.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery::testing {

using Vec = std::vector<double>;
using Values = std::map<std::string, Vec>;

struct ReferenceSizes {
  int batch, sequence, hidden, heads, kv_heads, layers, inner, vocab;
};

/// y[n,o] = x[n,i]·W (+ b), W stored [i,o], or [o,i] when `rows_out`.
inline Vec affine(const Vec& x, const Vec& w, const Vec* b, int n, int i, int o, bool rows_out) {
  Vec y(static_cast<std::size_t>(n * o));
  for (int r = 0; r < n; ++r)
    for (int c = 0; c < o; ++c) {
      double s = b ? (*b)[c] : 0;
      for (int k = 0; k < i; ++k) s += x[r * i + k] * (rows_out ? w[c * i + k] : w[k * o + c]);
      y[r * o + c] = s;
    }
  return y;
}

/// The gradients of `affine`: dx returned, dw and db added to.
inline Vec affine_back(const Vec& x, const Vec& w, const Vec& dy, Vec& dw, Vec* db, int n, int i, int o,
                       bool rows_out) {
  Vec dx(x.size(), 0.0);
  for (int r = 0; r < n; ++r)
    for (int c = 0; c < o; ++c) {
      const double g = dy[r * o + c];
      if (db) (*db)[c] += g;
      for (int k = 0; k < i; ++k) {
        const int at = rows_out ? c * i + k : k * o + c;
        dx[r * i + k] += g * w[at];
        dw[at] += g * x[r * i + k];
      }
    }
  return dx;
}

/// LayerNorm (b given) or RMSNorm of n rows of h numbers.
inline Vec normed(const Vec& x, const Vec& w, const Vec* b, int n, int h, double eps) {
  Vec y(x.size());
  for (int r = 0; r < n; ++r) {
    double mean = 0, square = 0;
    if (b)
      for (int k = 0; k < h; ++k) mean += x[r * h + k] / h;
    for (int k = 0; k < h; ++k) square += (x[r * h + k] - mean) * (x[r * h + k] - mean) / h;
    for (int k = 0; k < h; ++k)
      y[r * h + k] = (x[r * h + k] - mean) / std::sqrt(square + eps) * w[k] + (b ? (*b)[k] : 0);
  }
  return y;
}

inline Vec normed_back(const Vec& x, const Vec& w, const Vec& dy, Vec& dw, Vec* db, int n, int h, double eps) {
  Vec dx(x.size());
  for (int r = 0; r < n; ++r) {
    double mean = 0, square = 0, sum_g = 0, sum_gx = 0;
    if (db)
      for (int k = 0; k < h; ++k) mean += x[r * h + k] / h;
    for (int k = 0; k < h; ++k) square += (x[r * h + k] - mean) * (x[r * h + k] - mean) / h;
    const double rstd = 1 / std::sqrt(square + eps);
    for (int k = 0; k < h; ++k) {
      const double hat = (x[r * h + k] - mean) * rstd, g = dy[r * h + k] * w[k];
      dw[k] += dy[r * h + k] * hat;
      if (db) (*db)[k] += dy[r * h + k];
      sum_g += g / h;
      sum_gx += g * hat / h;
    }
    for (int k = 0; k < h; ++k) {
      const double hat = (x[r * h + k] - mean) * rstd;
      dx[r * h + k] = rstd * (dy[r * h + k] * w[k] - (db ? sum_g : 0) - hat * sum_gx);
    }
  }
  return dx;
}

/// Causal softmax attention; q [n, heads·d], k and v [n, kv_heads·d]. Keeps the probabilities for the backward pass.
struct CausalAttention {
  ReferenceSizes s;
  int d;
  Vec p;  // [batch, heads, sequence, sequence]

  std::size_t at(int b, int h, int i, int j) const {
    return ((static_cast<std::size_t>(b) * s.heads + h) * s.sequence + i) * s.sequence + j;
  }
  int q_at(int b, int i, int h) const { return (b * s.sequence + i) * s.heads * d + h * d; }
  int k_at(int b, int j, int h) const { return (b * s.sequence + j) * s.kv_heads * d + h * s.kv_heads / s.heads * d; }

  Vec forward(const Vec& q, const Vec& k, const Vec& v) {
    p.assign(static_cast<std::size_t>(s.batch) * s.heads * s.sequence * s.sequence, 0.0);
    Vec o(q.size(), 0.0);
    for (int b = 0; b < s.batch; ++b)
      for (int h = 0; h < s.heads; ++h)
        for (int i = 0; i < s.sequence; ++i) {
          double most = -1e300, sum = 0;
          for (int j = 0; j <= i; ++j) {
            double dot = 0;
            for (int c = 0; c < d; ++c) dot += q[q_at(b, i, h) + c] * k[k_at(b, j, h) + c];
            p[at(b, h, i, j)] = dot / std::sqrt(double(d));
            most = std::max(most, p[at(b, h, i, j)]);
          }
          for (int j = 0; j <= i; ++j) sum += p[at(b, h, i, j)] = std::exp(p[at(b, h, i, j)] - most);
          for (int j = 0; j <= i; ++j) {
            p[at(b, h, i, j)] /= sum;
            for (int c = 0; c < d; ++c) o[q_at(b, i, h) + c] += p[at(b, h, i, j)] * v[k_at(b, j, h) + c];
          }
        }
    return o;
  }

  void backward(const Vec& q, const Vec& k, const Vec& v, const Vec& d_o, Vec& dq, Vec& dk, Vec& dv) const {
    dq.assign(q.size(), 0.0), dk.assign(k.size(), 0.0), dv.assign(v.size(), 0.0);
    for (int b = 0; b < s.batch; ++b)
      for (int h = 0; h < s.heads; ++h)
        for (int i = 0; i < s.sequence; ++i) {
          Vec dp(i + 1);
          double mean = 0;
          for (int j = 0; j <= i; ++j) {
            for (int c = 0; c < d; ++c) {
              dp[j] += d_o[q_at(b, i, h) + c] * v[k_at(b, j, h) + c];
              dv[k_at(b, j, h) + c] += p[at(b, h, i, j)] * d_o[q_at(b, i, h) + c];
            }
            mean += dp[j] * p[at(b, h, i, j)];
          }
          for (int j = 0; j <= i; ++j) {
            const double ds = p[at(b, h, i, j)] * (dp[j] - mean) / std::sqrt(double(d));
            for (int c = 0; c < d; ++c) {
              dq[q_at(b, i, h) + c] += ds * k[k_at(b, j, h) + c];
              dk[k_at(b, j, h) + c] += ds * q[q_at(b, i, h) + c];
            }
          }
        }
  }
};

/// Mean cross-entropy; replaces the logits by their gradient.
inline double cross_entropy(Vec& logits, const std::vector<std::int32_t>& targets, int vocab) {
  const std::size_t n = targets.size();
  double loss = 0;
  for (std::size_t r = 0; r < n; ++r) {
    double most = -1e300, sum = 0;
    for (int c = 0; c < vocab; ++c) most = std::max(most, logits[r * vocab + c]);
    for (int c = 0; c < vocab; ++c) sum += std::exp(logits[r * vocab + c] - most);
    loss += (most + std::log(sum) - logits[r * vocab + targets[r]]) / double(n);
    for (int c = 0; c < vocab; ++c)
      logits[r * vocab + c] =
          (std::exp(logits[r * vocab + c] - most) / sum - (c == targets[r] ? 1.0 : 0.0)) / double(n);
  }
  return loss;
}

inline void add_to(Vec& a, const Vec& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
}

inline Vec columns(const Vec& x, int n, int width, int first, int count) {
  Vec y(static_cast<std::size_t>(n * count));
  for (int r = 0; r < n; ++r)
    for (int c = 0; c < count; ++c) y[r * count + c] = x[r * width + first + c];
  return y;
}

/// GPT-2 (pre-norm, learned positions, fused qkv stored [in, out], tanh-GELU, tied head). `run` returns the loss.
class Gpt2Reference {
 public:
  Gpt2Reference(const ReferenceSizes& sizes, const Values& weights, Values& gradients)
      : s{sizes}, w{weights}, g{gradients} {
    g.clear();
    for (const auto& [name, values] : w) g[name].assign(values.size(), 0.0);
  }

  double run(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets) {
    Vec x(static_cast<std::size_t>(n * h));
    for (int r = 0; r < n; ++r)
      for (int k = 0; k < h; ++k)
        x[r * h + k] =
            w.at("transformer.wte.weight")[tokens[r] * h + k] + w.at("transformer.wpe.weight")[r % s.sequence * h + k];
    for (int l = 0; l < s.layers; ++l) forward(l, x);
    const Vec last = normed(x, w.at("transformer.ln_f.weight"), &w.at("transformer.ln_f.bias"), n, h, eps);
    Vec logits = affine(last, w.at("transformer.wte.weight"), nullptr, n, h, s.vocab, true);
    const double loss = cross_entropy(logits, targets, s.vocab);

    Vec d = affine_back(last, w.at("transformer.wte.weight"), logits, g["transformer.wte.weight"], nullptr, n, h,
                        s.vocab, true);
    d = normed_back(x, w.at("transformer.ln_f.weight"), d, g["transformer.ln_f.weight"], &g["transformer.ln_f.bias"], n,
                    h, eps);
    for (int l = s.layers; l-- > 0;) backward(l, d);
    for (int r = 0; r < n; ++r)
      for (int k = 0; k < h; ++k) {
        g["transformer.wte.weight"][tokens[r] * h + k] += d[r * h + k];
        g["transformer.wpe.weight"][r % s.sequence * h + k] += d[r * h + k];
      }
    return loss;
  }

 private:
  struct Kept {
    Vec x, a, qkv, q, k, v, o, x2, b, u, z;
    CausalAttention att;
  };

  void forward(int l, Vec& x) {
    const std::string p = "transformer.h." + std::to_string(l) + ".";
    Kept t{.x = x, .att = {s, h / s.heads, {}}};
    t.a = normed(x, w.at(p + "ln_1.weight"), &w.at(p + "ln_1.bias"), n, h, eps);
    t.qkv = affine(t.a, w.at(p + "attn.c_attn.weight"), &w.at(p + "attn.c_attn.bias"), n, h, 3 * h, false);
    t.q = columns(t.qkv, n, 3 * h, 0, h), t.k = columns(t.qkv, n, 3 * h, h, h),
    t.v = columns(t.qkv, n, 3 * h, 2 * h, h);
    t.o = t.att.forward(t.q, t.k, t.v);
    add_to(x, affine(t.o, w.at(p + "attn.c_proj.weight"), &w.at(p + "attn.c_proj.bias"), n, h, h, false));
    t.x2 = x;
    t.b = normed(x, w.at(p + "ln_2.weight"), &w.at(p + "ln_2.bias"), n, h, eps);
    t.u = affine(t.b, w.at(p + "mlp.c_fc.weight"), &w.at(p + "mlp.c_fc.bias"), n, h, f, false);
    t.z = t.u;
    for (double& v : t.z) v = 0.5 * v * (1 + std::tanh(c0 * (v + c1 * v * v * v)));
    add_to(x, affine(t.z, w.at(p + "mlp.c_proj.weight"), &w.at(p + "mlp.c_proj.bias"), n, f, h, false));
    kept.push_back(std::move(t));
  }

  void backward(int l, Vec& d) {
    const std::string p = "transformer.h." + std::to_string(l) + ".";
    const Kept& t = kept[l];
    Vec dz = affine_back(t.z, w.at(p + "mlp.c_proj.weight"), d, g[p + "mlp.c_proj.weight"], &g[p + "mlp.c_proj.bias"],
                         n, f, h, false);
    for (std::size_t i = 0; i < dz.size(); ++i) {
      const double v = t.u[i], th = std::tanh(c0 * (v + c1 * v * v * v));
      dz[i] *= 0.5 * (1 + th) + 0.5 * v * (1 - th * th) * c0 * (1 + 3 * c1 * v * v);
    }
    const Vec db = affine_back(t.b, w.at(p + "mlp.c_fc.weight"), dz, g[p + "mlp.c_fc.weight"], &g[p + "mlp.c_fc.bias"],
                               n, h, f, false);
    add_to(d, normed_back(t.x2, w.at(p + "ln_2.weight"), db, g[p + "ln_2.weight"], &g[p + "ln_2.bias"], n, h, eps));
    const Vec d_o = affine_back(t.o, w.at(p + "attn.c_proj.weight"), d, g[p + "attn.c_proj.weight"],
                                &g[p + "attn.c_proj.bias"], n, h, h, false);
    Vec dq, dk, dv, dqkv(t.qkv.size());
    t.att.backward(t.q, t.k, t.v, d_o, dq, dk, dv);
    for (int r = 0; r < n; ++r)
      for (int k = 0; k < h; ++k) {
        dqkv[r * 3 * h + k] = dq[r * h + k];
        dqkv[r * 3 * h + h + k] = dk[r * h + k];
        dqkv[r * 3 * h + 2 * h + k] = dv[r * h + k];
      }
    const Vec da = affine_back(t.a, w.at(p + "attn.c_attn.weight"), dqkv, g[p + "attn.c_attn.weight"],
                               &g[p + "attn.c_attn.bias"], n, h, 3 * h, false);
    add_to(d, normed_back(t.x, w.at(p + "ln_1.weight"), da, g[p + "ln_1.weight"], &g[p + "ln_1.bias"], n, h, eps));
  }

  const ReferenceSizes s;
  const Values& w;
  Values& g;
  std::vector<Kept> kept;
  const int n = s.batch * s.sequence, h = s.hidden, f = s.inner;
  const double eps = 1e-5, c0 = std::sqrt(2 / M_PI), c1 = 0.044715;
};

inline double gpt2_reference(const ReferenceSizes& s, const Values& w, const std::vector<std::int32_t>& tokens,
                             const std::vector<std::int32_t>& targets, Values& g) {
  return Gpt2Reference{s, w, g}.run(tokens, targets);
}

/// Turns heads of x [n, heads·d] by the angle of the position, pairs (i, i + d/2); `sign` −1 turns back.
inline void turn(Vec& x, const ReferenceSizes& s, int heads, int d, double theta, double sign) {
  const int n = s.batch * s.sequence;
  for (int r = 0; r < n; ++r)
    for (int hd = 0; hd < heads; ++hd)
      for (int i = 0; i < d / 2; ++i) {
        const double angle = sign * (r % s.sequence) * std::pow(theta, -2.0 * i / d);
        double &a = x[(r * heads + hd) * d + i], &b = x[(r * heads + hd) * d + i + d / 2];
        const double a0 = a, b0 = b;
        a = a0 * std::cos(angle) - b0 * std::sin(angle);
        b = a0 * std::sin(angle) + b0 * std::cos(angle);
      }
}
/// Llama (RMSNorm, rotary positions, grouped key/value heads, SwiGLU, untied head).
class LlamaReference {
 public:
  LlamaReference(const ReferenceSizes& sizes, const Values& weights, Values& gradients)
      : s{sizes}, w{weights}, g{gradients} {
    g.clear();
    for (const auto& [name, values] : w) g[name].assign(values.size(), 0.0);
  }
  virtual ~LlamaReference() = default;

  double run(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets) {
    Vec x(static_cast<std::size_t>(n * h));
    for (int r = 0; r < n; ++r)
      for (int k = 0; k < h; ++k) x[r * h + k] = w.at("model.embed_tokens.weight")[tokens[r] * h + k];
    for (int l = 0; l < s.layers; ++l) forward(l, x);
    const Vec last = normed(x, w.at("model.norm.weight"), nullptr, n, h, eps);
    Vec logits = affine(last, w.at("lm_head.weight"), nullptr, n, h, s.vocab, true);
    const double loss = cross_entropy(logits, targets, s.vocab);

    Vec dx = affine_back(last, w.at("lm_head.weight"), logits, g["lm_head.weight"], nullptr, n, h, s.vocab, true);
    dx = normed_back(x, w.at("model.norm.weight"), dx, g["model.norm.weight"], nullptr, n, h, eps);
    for (int l = s.layers; l-- > 0;) backward(l, dx);
    for (int r = 0; r < n; ++r)
      for (int k = 0; k < h; ++k) g["model.embed_tokens.weight"][tokens[r] * h + k] += dx[r * h + k];
    return loss;
  }

 protected:
  struct Inner {
    Vec b, gate, up, z;
  };
  /// SwiGLU of `rows` rows, whose matrices are called gate, up, down; and its gradients: of b returned.
  Vec swiglu(const std::array<std::string, 3>& names, const Vec& b, int rows, Inner& t) const {
    t.b = b;
    t.gate = affine(b, w.at(names[0]), nullptr, rows, h, f, true);
    t.up = affine(b, w.at(names[1]), nullptr, rows, h, f, true);
    t.z = t.up;
    for (std::size_t i = 0; i < t.z.size(); ++i) t.z[i] *= t.gate[i] / (1 + std::exp(-t.gate[i]));
    return affine(t.z, w.at(names[2]), nullptr, rows, f, h, true);
  }
  Vec swiglu_back(const std::array<std::string, 3>& names, const Vec& dy, int rows, const Inner& t) {
    const Vec dz = affine_back(t.z, w.at(names[2]), dy, g[names[2]], nullptr, rows, f, h, true);
    Vec dgate(dz.size()), dup(dz.size());
    for (std::size_t i = 0; i < dz.size(); ++i) {
      const double sig = 1 / (1 + std::exp(-t.gate[i]));
      dup[i] = dz[i] * t.gate[i] * sig;
      dgate[i] = dz[i] * t.up[i] * sig * (1 + t.gate[i] * (1 - sig));
    }
    Vec db = affine_back(t.b, w.at(names[0]), dgate, g[names[0]], nullptr, rows, h, f, true);
    add_to(db, affine_back(t.b, w.at(names[1]), dup, g[names[1]], nullptr, rows, h, f, true));
    return db;
  }
  virtual Vec feed_forward(int l, const Vec& b) { return swiglu(mlp_names(l), b, n, inner[l]); }
  virtual Vec feed_forward_back(int l, const Vec& dy) { return swiglu_back(mlp_names(l), dy, n, inner[l]); }
  const ReferenceSizes s;
  const Values& w;
  Values& g;
  const int n = s.batch * s.sequence, h = s.hidden, f = s.inner;

 private:
  struct Kept {
    Vec x, a, q, k, v, o, x2;
    CausalAttention att;
  };
  static std::array<std::string, 3> mlp_names(int l) {
    const std::string p = "model.layers." + std::to_string(l) + ".mlp.";
    return {p + "gate_proj.weight", p + "up_proj.weight", p + "down_proj.weight"};
  }
  void forward(int l, Vec& x) {
    const std::string p = "model.layers." + std::to_string(l) + ".";
    Kept t{.x = x, .att = {s, d, {}}};
    t.a = normed(x, w.at(p + "input_layernorm.weight"), nullptr, n, h, eps);
    t.q = affine(t.a, w.at(p + "self_attn.q_proj.weight"), nullptr, n, h, h, true);
    t.k = affine(t.a, w.at(p + "self_attn.k_proj.weight"), nullptr, n, h, kv, true);
    t.v = affine(t.a, w.at(p + "self_attn.v_proj.weight"), nullptr, n, h, kv, true);
    turn(t.q, s, s.heads, d, theta, 1), turn(t.k, s, s.kv_heads, d, theta, 1);
    t.o = t.att.forward(t.q, t.k, t.v);
    add_to(x, affine(t.o, w.at(p + "self_attn.o_proj.weight"), nullptr, n, h, h, true));
    t.x2 = x;
    add_to(x, feed_forward(l, normed(x, w.at(p + "post_attention_layernorm.weight"), nullptr, n, h, eps)));
    kept.push_back(std::move(t));
  }

  void backward(int l, Vec& dx) {
    const std::string p = "model.layers." + std::to_string(l) + ".";
    const Kept& t = kept[l];
    const Vec db = feed_forward_back(l, dx);
    add_to(dx, normed_back(t.x2, w.at(p + "post_attention_layernorm.weight"), db,
                           g[p + "post_attention_layernorm.weight"], nullptr, n, h, eps));
    const Vec d_o = affine_back(t.o, w.at(p + "self_attn.o_proj.weight"), dx, g[p + "self_attn.o_proj.weight"], nullptr,
                                n, h, h, true);
    Vec dq, dk, dv;
    t.att.backward(t.q, t.k, t.v, d_o, dq, dk, dv);
    turn(dq, s, s.heads, d, theta, -1), turn(dk, s, s.kv_heads, d, theta, -1);
    Vec da = affine_back(t.a, w.at(p + "self_attn.q_proj.weight"), dq, g[p + "self_attn.q_proj.weight"], nullptr, n, h,
                         h, true);
    add_to(da, affine_back(t.a, w.at(p + "self_attn.k_proj.weight"), dk, g[p + "self_attn.k_proj.weight"], nullptr, n,
                           h, kv, true));
    add_to(da, affine_back(t.a, w.at(p + "self_attn.v_proj.weight"), dv, g[p + "self_attn.v_proj.weight"], nullptr, n,
                           h, kv, true));
    add_to(dx, normed_back(t.x, w.at(p + "input_layernorm.weight"), da, g[p + "input_layernorm.weight"], nullptr, n, h,
                           eps));
  }
  std::vector<Kept> kept;
  std::vector<Inner> inner = std::vector<Inner>(static_cast<std::size_t>(s.layers));
  const int d = h / s.heads, kv = s.kv_heads * d;
  const double eps = 1e-5, theta = 10000;
};

inline double llama_reference(const ReferenceSizes& s, const Values& w, const std::vector<std::int32_t>& tokens,
                              const std::vector<std::int32_t>& targets, Values& g) {
  return LlamaReference{s, w, g}.run(tokens, targets);
}

}  // namespace orrery::testing
