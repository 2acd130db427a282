// SPDX-License-Identifier: Apache-2.0
// Steps of small language models, op by op as a strategy lowers them: what isolated ops cannot show is the state in
// which a step leaves the caches for its next op.
#include <fmt/format.h>

#include <algorithm>

#include "calibrate/draw.hpp"
#include "calibrate/suites.hpp"

namespace orrery {
namespace {

/// A parameter with what training keeps for it.
struct Weight {
  TensorId value, gradient, m, v;
  std::int64_t elements = 0;
};

struct Linear {
  Weight w, bias;
  std::int64_t in = 0, out = 0;
};

struct NormWeights {
  Weight w, b;
};

/// What a norm keeps for its gradient.
struct Normed {
  TensorId x, y, mean, rstd;
};

struct Layer {
  NormWeights attention_norm, ffn_norm;
  Linear qkv, out, up, gate, down;
  Normed normed1, normed2;
  TensorId q, k, v, core, lse, up_y, gate_y, act_y;
};

class StepMaker {
 public:
  StepMaker(const StepShape& s, PlanBuilder& b, bool trains)
      : s_{s},
        b_{b},
        trains_{trains},
        rows_{trains ? s.batch * s.sequence : s.batch},
        dim_{s.hidden / s.heads},
        kind_{s.llama ? NormKind::Rms : NormKind::Layer} {}

  void train(TensorId tokens, TensorId targets) {
    make_weights();
    const TensorId x = forward(tokens);
    backward(x, tokens, targets);
    update();
  }

  void decode(TensorId tokens) {
    make_weights();
    const TensorId logits = forward(tokens);
    b_.add("sample", Sample{.rows = rows_, .vocab = s_.vocab},
           {reads(logits),
            writes(b_.tensor("next", {rows_}, {.dtype = DType::I32, .role = TensorRole::Result, .persistent = true}))});
  }

 private:
  std::int64_t kv_width() const { return s_.kv_heads * dim_; }
  std::int64_t q_width() const { return s_.heads * dim_; }

  TensorId act(const Shape& shape) { return b_.tensor(fmt::format("a{}", serial_++), shape, {}); }
  TensorId kept(const Shape& shape, TensorRole role) {
    return b_.tensor(fmt::format("p{}", serial_++), shape, {.role = role, .persistent = true});
  }

  Weight weight(const Shape& shape) {
    Weight w{.value = kept(shape, TensorRole::Parameter), .elements = shape.elements()};
    if (trains_) {
      w.gradient = kept(shape, TensorRole::Gradient);
      w.m = kept(shape, TensorRole::OptimizerState);
      w.v = kept(shape, TensorRole::OptimizerState);
    }
    weights_.push_back(w);
    return w;
  }
  Linear linear_weights(std::int64_t in, std::int64_t out) {
    Linear l{.w = weight(s_.llama ? Shape{out, in} : Shape{in, out}), .in = in, .out = out};
    if (!s_.llama) l.bias = weight({out});
    return l;
  }
  NormWeights norm_weights() {
    NormWeights n{.w = weight({s_.hidden})};
    if (!s_.llama) n.b = weight({s_.hidden});
    return n;
  }

  void make_weights() {
    table_ = weight({s_.vocab, s_.hidden});
    for (std::int64_t i = 0; i < s_.layers; ++i) {
      Layer l{.attention_norm = norm_weights(), .ffn_norm = norm_weights()};
      l.qkv = linear_weights(s_.hidden, q_width() + 2 * kv_width());
      l.out = linear_weights(q_width(), s_.hidden);
      l.up = linear_weights(s_.hidden, s_.ffn);
      if (s_.llama) l.gate = linear_weights(s_.hidden, s_.ffn);
      l.down = linear_weights(s_.ffn, s_.hidden);
      layers_.push_back(l);
    }
    final_norm_ = norm_weights();
  }

  // Forward.
  TensorId linear(const Linear& l, TensorId x) {
    const TensorId y = act({rows_, l.out});
    const Gemm g{.m = rows_, .n = l.out, .k = l.in, .transpose_b = s_.llama, .bias = !s_.llama};
    if (g.bias)
      b_.add("linear", g, {reads(x), reads(l.w.value), reads(l.bias.value), writes(y)});
    else
      b_.add("linear", g, {reads(x), reads(l.w.value), writes(y)});
    return y;
  }

  Normed norm(const NormWeights& n, TensorId x) {
    Normed r{.x = x, .y = act({rows_, s_.hidden}), .rstd = act({rows_})};
    const NormForward work{.kind = kind_, .rows = rows_, .dim = s_.hidden};
    if (s_.llama) {
      b_.add("norm", work, {reads(x), reads(n.w.value), writes(r.y), writes(r.rstd)});
    } else {
      r.mean = act({rows_});
      b_.add("norm", work, {reads(x), reads(n.w.value), reads(n.b.value), writes(r.y), writes(r.mean), writes(r.rstd)});
    }
    return r;
  }

  TensorId sum(TensorId a, TensorId b) {
    const TensorId y = act({rows_, s_.hidden});
    b_.add("add", Add{rows_, s_.hidden}, {reads(a), reads(b), writes(y)});
    return y;
  }

  TensorId heads(TensorId qkv, std::int64_t count, std::int64_t first) {
    const std::int64_t width = q_width() + 2 * kv_width(), t = trains_ ? s_.sequence : 1;
    return b_.view(qkv, "heads",
                   {.shape = Shape{s_.batch, t, count, dim_}, .strides = {t * width, width, dim_, 1}, .offset = first});
  }

  AttentionShape attention_shape() const {
    return {.batch = s_.batch,
            .heads = s_.heads,
            .kv_heads = s_.kv_heads,
            .q = trains_ ? s_.sequence : 1,
            .kv = s_.sequence,
            .qk_dim = dim_,
            .v_dim = dim_,
            .causal = true,
            .scale = 0.125};
  }

  TensorId append(TensorId rows, const char* name) {
    const TensorId cache = b_.tensor(fmt::format("{}{}", name, serial_++), {s_.batch, s_.sequence, s_.kv_heads, dim_},
                                     {.role = TensorRole::KvCache, .persistent = true});
    b_.add(
        "append",
        AppendCache{.batch = s_.batch, .rows = 1, .cols = kv_width(), .capacity = s_.sequence, .at = s_.sequence - 1},
        {reads(rows), updates(cache)});
    return cache;
  }

  TensorId attention(Layer& l, TensorId x) {
    const TensorId qkv = linear(l.qkv, x);
    l.q = heads(qkv, s_.heads, 0), l.k = heads(qkv, s_.kv_heads, q_width()),
    l.v = heads(qkv, s_.kv_heads, q_width() + kv_width());
    if (!trains_) l.k = append(l.k, "keys"), l.v = append(l.v, "values");
    const TensorId o = act({rows_, q_width()});
    l.core = b_.view(o, "core", Layout::contiguous(Shape{s_.batch, trains_ ? s_.sequence : 1, s_.heads, dim_}));
    const AttentionForward work{attention_shape(), trains_};
    if (trains_) {
      l.lse = act({s_.batch, s_.heads, s_.sequence});
      b_.add("attention", work, {reads(l.q), reads(l.k), reads(l.v), writes(l.core), writes(l.lse)});
    } else {
      b_.add("attention", work, {reads(l.q), reads(l.k), reads(l.v), writes(l.core)});
    }
    return linear(l.out, o);
  }

  TensorId ffn(Layer& l, TensorId x) {
    l.up_y = linear(l.up, x);
    l.act_y = act({rows_, s_.ffn});
    if (s_.llama) {
      l.gate_y = linear(l.gate, x);
      b_.add("gated", GatedForward{ActivationKind::Silu, rows_, s_.ffn},
             {reads(l.gate_y), reads(l.up_y), writes(l.act_y)});
    } else {
      b_.add("activation", ActivationForward{ActivationKind::GeluTanh, rows_, s_.ffn},
             {reads(l.up_y), writes(l.act_y)});
    }
    return linear(l.down, l.act_y);
  }

  TensorId forward(TensorId tokens) {
    TensorId x = act({rows_, s_.hidden});
    b_.add("embedding", Gather{.rows = rows_, .cols = s_.hidden, .table_rows = s_.vocab, .first = 0, .last = s_.vocab},
           {reads(table_.value), reads(tokens), writes(x)});
    for (Layer& l : layers_) {
      l.normed1 = norm(l.attention_norm, x);
      x = sum(x, attention(l, l.normed1.y));
      l.normed2 = norm(l.ffn_norm, x);
      x = sum(x, ffn(l, l.normed2.y));
    }
    final_ = norm(final_norm_, x);
    const TensorId logits = act({rows_, s_.vocab});
    b_.add("logits", Gemm{.m = rows_, .n = s_.vocab, .k = s_.hidden, .transpose_b = true},
           {reads(final_.y), reads(table_.value), writes(logits)});
    return logits;
  }

  // Backward.
  void weight_gradient(const Weight& w, TensorId left, TensorId right, std::int64_t m, std::int64_t n) {
    b_.add("dw", Gemm{.m = m, .n = n, .k = rows_, .transpose_a = true},
           {reads(left), reads(right), writes(w.gradient)});
  }

  TensorId linear_backward(const Linear& l, TensorId x, TensorId dy) {
    const TensorId dx = act({rows_, l.in});
    b_.add("dx", Gemm{.m = rows_, .n = l.in, .k = l.out, .transpose_b = !s_.llama},
           {reads(dy), reads(l.w.value), writes(dx)});
    if (s_.llama)
      weight_gradient(l.w, dy, x, l.out, l.in);
    else
      weight_gradient(l.w, x, dy, l.in, l.out);
    if (!s_.llama) b_.add("db", SumRows{.rows = rows_, .cols = l.out}, {reads(dy), writes(l.bias.gradient)});
    return dx;
  }

  TensorId norm_backward(const NormWeights& n, const Normed& kept, TensorId dy) {
    const TensorId dx = act({rows_, s_.hidden});
    const NormBackward work{.kind = kind_, .rows = rows_, .dim = s_.hidden};
    if (s_.llama)
      b_.add("norm_dx", work,
             {reads(kept.x), reads(n.w.value), reads(kept.rstd), reads(dy), writes(dx), writes(n.w.gradient)});
    else
      b_.add("norm_dx", work,
             {reads(kept.x), reads(n.w.value), reads(kept.mean), reads(kept.rstd), reads(dy), writes(dx),
              writes(n.w.gradient), writes(n.b.gradient)});
    return dx;
  }

  TensorId ffn_backward(Layer& l, TensorId dy) {
    const TensorId da = linear_backward(l.down, l.act_y, dy), du = act({rows_, s_.ffn});
    if (!s_.llama) {
      b_.add("activation_dx", ActivationBackward{ActivationKind::GeluTanh, rows_, s_.ffn},
             {reads(l.up_y), reads(da), writes(du)});
      return linear_backward(l.up, l.normed2.y, du);
    }
    const TensorId dg = act({rows_, s_.ffn});
    b_.add("gated_dx", GatedBackward{ActivationKind::Silu, rows_, s_.ffn},
           {reads(l.gate_y), reads(l.up_y), reads(da), writes(dg), writes(du)});
    return sum(linear_backward(l.gate, l.normed2.y, dg), linear_backward(l.up, l.normed2.y, du));
  }

  TensorId attention_backward(Layer& l, TensorId dy) {
    const TensorId o = b_.plan().owner(l.core);
    const TensorId d_o = linear_backward(l.out, o, dy), d_qkv = act({rows_, q_width() + 2 * kv_width()});
    const TensorId d_core = b_.view(d_o, "d_core", Layout::contiguous(Shape{s_.batch, s_.sequence, s_.heads, dim_}));
    b_.add("attention_dx", AttentionBackward{attention_shape()},
           {reads(l.q), reads(l.k), reads(l.v), reads(l.core), reads(l.lse), reads(d_core),
            writes(heads(d_qkv, s_.heads, 0)), writes(heads(d_qkv, s_.kv_heads, q_width())),
            writes(heads(d_qkv, s_.kv_heads, q_width() + kv_width()))});
    return linear_backward(l.qkv, l.normed1.y, d_qkv);
  }

  void backward(TensorId logits, TensorId tokens, TensorId targets) {
    const TensorId lse = act({rows_}), loss = kept({1}, TensorRole::Result), dlogits = act({rows_, s_.vocab});
    b_.add("loss", CrossEntropyForward{rows_, s_.vocab, 1.0 / double(rows_)},
           {reads(logits), reads(targets), writes(lse), updates(loss)});
    b_.add("loss_dx", CrossEntropyBackward{rows_, s_.vocab, 1.0 / double(rows_)},
           {reads(logits), reads(targets), reads(lse), writes(dlogits)});
    TensorId d = act({rows_, s_.hidden});
    b_.add("dx", Gemm{.m = rows_, .n = s_.hidden, .k = s_.vocab}, {reads(dlogits), reads(table_.value), writes(d)});
    weight_gradient(table_, dlogits, final_.y, s_.vocab, s_.hidden);
    d = norm_backward(final_norm_, final_, d);
    for (auto l = layers_.rbegin(); l != layers_.rend(); ++l) {
      d = sum(d, norm_backward(l->ffn_norm, l->normed2, ffn_backward(*l, d)));
      d = sum(d, norm_backward(l->attention_norm, l->normed1, attention_backward(*l, d)));
    }
    b_.add("embedding_dx",
           ScatterAdd{.rows = rows_, .cols = s_.hidden, .table_rows = s_.vocab, .first = 0, .last = s_.vocab},
           {reads(d), reads(tokens), updates(table_.gradient)});
  }

  void update() {
    const TensorId norm2 =
        b_.tensor("norm2", {1}, {.dtype = DType::F64, .role = TensorRole::Result, .persistent = true});
    for (const Weight& w : weights_) b_.add("clip", SumSquares{w.elements}, {reads(w.gradient), updates(norm2)});
    for (const Weight& w : weights_)
      b_.add("adamw", AdamW{.elements = w.elements, .decay = 0.01, .max_norm = 1, .step = Extent{0, Symbol::Step}},
             {updates(w.value), reads(w.gradient), updates(w.m), updates(w.v), reads(norm2)});
  }

  StepShape s_;
  PlanBuilder& b_;
  bool trains_;
  std::int64_t rows_, dim_;
  NormKind kind_;
  std::int64_t serial_ = 0;
  std::vector<Weight> weights_;
  std::vector<Layer> layers_;
  Weight table_;
  NormWeights final_norm_;
  Normed final_;
};

constexpr double kStepWeight = 3;  // of a point in a fit, against one of an op that stands alone

Bench make_bench(const StepShape& s, Random& random, bool trains) {
  PlanBuilder builder{trains ? "train step" : "decode step"};
  builder.begin_class("all", {});
  OperandMaker operands{builder, random};
  StepMaker step{s, builder, trains};
  const std::int64_t rows = trains ? s.batch * s.sequence : s.batch;
  const TensorId tokens = operands.random_indices(rows, s.vocab).tensor();
  if (trains)
    step.train(tokens, operands.random_indices(rows, s.vocab).tensor());
  else
    step.decode(tokens);
  Bench bench{builder.take(&host_workspaces()), operands.contents(), {}, kStepWeight};
  bench.bindings[Symbol::Step] = 1;
  return bench;
}

StepShape draw_shape(Random& r) {
  StepShape s{.llama = r.below(2) == 0};
  const std::int64_t dims[] = {32, 64, 64, 128};
  const std::int64_t dim = one_of(r, dims);
  s.heads = std::max<std::int64_t>(1, log_integer(r, 128, 1024) / dim);
  if (s.heads % 2 == 1 && s.heads > 1) ++s.heads;
  s.hidden = s.heads * dim;
  s.kv_heads = s.llama && s.heads % 2 == 0 && r.below(2) == 0 ? s.heads / 2 : s.heads;
  s.ffn = s.llama ? (s.hidden * 8 / 3 + 63) / 64 * 64 : 4 * s.hidden;
  s.vocab = width(r, 256, 32768);
  s.layers = log_integer(r, 1, 4);
  return s;
}

double step_flops(const StepShape& s, std::int64_t rows) {
  const double weights = double(s.layers * (4 * s.hidden * s.hidden + 3 * s.hidden * s.ffn) + s.vocab * s.hidden);
  return 6 * weights * double(rows);
}

}  // namespace

StepShape draw_step(Random& r) {
  constexpr double kLeast = 2e8, kMost = 6e9;
  for (;;) {
    StepShape s = draw_shape(r);
    s.sequence = width(r, 64, 1024);
    s.batch = log_integer(r, 1, 16);
    const double flops = step_flops(s, s.batch * s.sequence);
    if (flops > kLeast && flops < kMost) return s;
  }
}

StepShape draw_decode(Random& r) {
  constexpr double kMost = 3e9;
  for (;;) {
    StepShape s = draw_shape(r);
    s.layers = log_integer(r, 1, 8);
    s.sequence = width(r, 64, 1024);
    s.batch = log_integer(r, 1, 16);
    if (step_flops(s, s.batch) < kMost) return s;
  }
}

Bench train_step_bench(const StepShape& shape, Random& random) { return make_bench(shape, random, true); }
Bench decode_step_bench(const StepShape& shape, Random& random) { return make_bench(shape, random, false); }

}  // namespace orrery
