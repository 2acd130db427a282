// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "sim/plan/kinds/common.hpp"

namespace orrery {

/// The shape of one attention over a batch of sequences: q queries against kv keys per sequence.
struct AttentionShape {
  std::int64_t batch = 1, heads = 1, kv_heads = 1;
  std::int64_t q = 0;  // queries per sequence
  Extent kv;           // keys per sequence
  std::int64_t qk_dim = 0, v_dim = 0;
  bool causal = true;       // query i sees keys up to kv − q + i
  std::int64_t window = 0;  // sliding window in tokens; 0: none
  bool chunked = false;     // windows do not slide: they lie side by side, and a query sees keys of its own
  double scale = 1;
  double cap = 0;                     // scaled scores s become cap·tanh(s/cap), before masks; 0: they stay
  bool bias = false;                  // additive [heads, q, kv], shared by the batch
  std::int64_t mask_groups = 0;       // additive [groups, q, kv]; sequence b uses group b mod groups; 0: none
  std::int64_t ragged_pairs = 0;      // sequences of unequal length: Σ q·kv over them; 0: all equal
  bool positions = false;             // tokens lie where two operands say; causal: query i sees key j if kv[j] ≤ q[i]
  std::int64_t visible = 0;           // pairs that are visible in one sequence; 0: as without positions
  std::int64_t documents = 0;         // behind one another in a sequence, in the mean; 0: it is one. An operand says
                                      // for each query the first key that it sees
  bool contexts = false;              // sequence b has kv.base + contexts[b] keys; kv is then their mean
  std::int64_t tree = 0;              // keys of a token tree at the end, of which a mask hides some
  Quantised cache = Quantised::None;  // keys and values in memory
  DType dtype = DType::F32;

  template <class V>
  void visit(V&& v) const {
    v("batch", batch);
    v("heads", heads);
    v("kv_heads", kv_heads);
    v("q", q);
    v("kv", kv);
    v("qk_dim", qk_dim);
    v("v_dim", v_dim);
    v("causal", causal);
    v("window", window);
    v("chunked", chunked);
    v("scale", scale);
    v("cap", cap);
    v("bias", bias);
    v("mask_groups", mask_groups);
    v("ragged_pairs", ragged_pairs);
    v("positions", positions);
    v("visible", visible);
    v("documents", documents);
    v("contexts", contexts);
    v("tree", tree);
    v("cache", cache);
    v("dtype", dtype);
  }

  /// (query, key) pairs that the mask leaves, per head, over the batch.
  ///   causal: Σᵢ min(kv − q + i + 1, window) for i in [0, q);  else q · kv
  ///   chunked: Σₚ (p mod window + 1) for p in [kv − q, kv)
  double pairs(const Bindings& b) const {
    if (visible > 0) return double(batch) * double(visible);
    if (ragged_pairs > 0) return double(ragged_pairs) * (causal ? 0.5 : 1.0);
    const double n = double(q), len = double(kv.at(b));
    if (chunked) return double(batch) * (chunk_pairs(kv.at(b)) - chunk_pairs(kv.at(b) - q));
    if (!causal) return double(batch) * n * (window > 0 ? std::min(double(window), len) : len);
    double all = n * (len - n) + n * (n + 1) / 2;
    if (window > 0 && double(window) < len) {
      const double w = double(window),
                   short_rows = std::clamp(w - (len - n), 0.0, n);  // rows that see fewer than w keys
      all = short_rows * (len - n) + short_rows * (short_rows + 1) / 2 + (n - short_rows) * w;
    }
    return double(batch) * all;
  }
  /// Keys of a sequence that some query sees: those of the first one's window, and the others' own.
  std::int64_t keys_read(const Bindings& b) const {
    const std::int64_t all = kv.at(b);
    if (chunked) return all - chunk_start(all - q);
    return causal && window > 0 ? std::min(all, window + q - 1) : all;
  }
  /// The first key of the chunk that a position is in.
  std::int64_t chunk_start(std::int64_t position) const {
    return std::max<std::int64_t>(0, position) / window * window;
  }
  /// Keys that the last of n tokens sees by the window.
  std::int64_t keys_of_row(std::int64_t n) const {
    if (chunked) return n - chunk_start(n - 1);
    return window > 0 ? std::min(window, n) : n;
  }
  /// Pairs of the first n tokens of a sequence in chunks.
  double chunk_pairs(std::int64_t n) const {
    const double w = double(window), rest = double(n % window);
    return double(n / window) * w * (w + 1) / 2 + rest * (rest + 1) / 2;
  }
  std::int64_t q_elements() const { return batch * q * heads * qk_dim; }
  std::int64_t o_elements() const { return batch * q * heads * v_dim; }
  std::int64_t k_elements(const Bindings& b) const { return batch * kv.at(b) * kv_heads * qk_dim; }
  std::int64_t v_elements(const Bindings& b) const { return batch * kv.at(b) * kv_heads * v_dim; }
  Bytes kv_bytes(const Bindings& b) const {
    const std::int64_t keys = batch * keys_read(b) * kv_heads;
    return size_quantised(cache, dtype, keys * qk_dim, qk_dim) + size_quantised(cache, dtype, keys * v_dim, v_dim);
  }
  bool operator==(const AttentionShape&) const = default;
};

/// O = softmax(scale·Q·Kᵀ + bias + mask)·V, with the log-sum-exp of each row kept for the backward pass; a query that
/// sees no key gives 0 and −∞.  q[b,q,H,dk] k[b,kv,Hkv,dk] v[b,kv,Hkv,dv].  2·pairs·H·(dk + dv) FLOP: exponentials and
/// bounds of scores are left out, as they are where attention is published in FLOP.  Operands: q k v
/// [bias] [mask] [q_positions[q] kv_positions[kv]] [first_keys[b,q]] [contexts[b]] [tree_mask[b,q,tree]] → o [lse].
struct AttentionForward {
  AttentionShape shape;
  bool keep_lse = true;

  static constexpr std::string_view kName = "attention";
  static constexpr OpClass kClass = OpClass::Attention;
  template <class V>
  void visit(V&& v) const {
    shape.visit(v);
    v("lse", keep_lse);
  }
  Amount amount(const Bindings& b) const {
    const auto& s = shape;
    return {Flops{2.0 * s.pairs(b) * double(s.heads) * double(s.qk_dim + s.v_dim)},
            size_of(s.dtype, s.q_elements()) + s.kv_bytes(b),
            size_of(s.dtype, s.o_elements()),
            {}};
  }
  bool operator==(const AttentionForward&) const = default;
};

/// Five products instead of two: 2·pairs·H·(3·dk + 2·dv) FLOP. Each gradient that is an updated operand is added to; o
/// and lse may be those of the attention over more keys. Operands: q k v [bias] [mask] [q_positions[q]
/// kv_positions[kv]] [first_keys[b,q]] o lse do → dq dk dv [dbias].
struct AttentionBackward {
  AttentionShape shape;

  static constexpr std::string_view kName = "attention_backward";
  static constexpr OpClass kClass = OpClass::Attention;
  template <class V>
  void visit(V&& v) const {
    shape.visit(v);
  }
  Amount amount(const Bindings& b) const {
    const auto& s = shape;
    const std::int64_t qkv = s.q_elements() + s.k_elements(b) + s.v_elements(b);
    return {Flops{2.0 * s.pairs(b) * double(s.heads) * double(3 * s.qk_dim + 2 * s.v_dim)},
            size_of(s.dtype, qkv + 2 * s.o_elements()),
            size_of(s.dtype, qkv),
            {}};
  }
  bool operator==(const AttentionBackward&) const = default;
};

/// Writes `rows` new rows per sequence into a cache [batch, capacity, cols] at row `at`, with `contexts` of sequence b
/// at row at.base + contexts[b].  Operands: rows [contexts[batch]] → cache.
struct AppendCache {
  std::int64_t batch = 1, rows = 1, cols = 0, capacity = 0;
  Extent at;
  bool contexts = false;
  Quantised cache = Quantised::None;  // the cache in memory
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "append_cache";
  static constexpr OpClass kClass = OpClass::Attention;
  template <class V>
  void visit(V&& v) const {
    v("batch", batch);
    v("rows", rows);
    v("cols", cols);
    v("capacity", capacity);
    v("at", at);
    v("contexts", contexts);
    v("cache", cache);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    const std::int64_t n = batch * rows * cols;
    return {{}, size_of(dtype, n), size_quantised(cache, dtype, n), {}};
  }
  bool operator==(const AppendCache&) const = default;
};

/// Additive attention bias from a table: bias[h,i,j] = table[index[i,j], h].  Operands: table index → bias.
struct RelativeBiasForward {
  std::int64_t heads = 1, q = 0, buckets = 0;
  Extent kv;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "relative_bias";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("heads", heads);
    v("q", q);
    v("kv", kv);
    v("buckets", buckets);
    v("dtype", dtype);
  }
  Amount amount(const Bindings& b) const {
    return {{},
            size_of(DType::I32, q * kv.at(b)) + size_of(dtype, buckets * heads),
            size_of(dtype, heads * q * kv.at(b)),
            {}};
  }
  bool operator==(const RelativeBiasForward&) const = default;
};

/// Operands: index dbias → dtable (added to).
struct RelativeBiasBackward {
  std::int64_t heads = 1, q = 0, kv = 0, buckets = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "relative_bias_backward";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("heads", heads);
    v("q", q);
    v("kv", kv);
    v("buckets", buckets);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(heads * q * kv)},
            size_of(DType::I32, q * kv) + size_of(dtype, heads * q * kv),
            size_of(dtype, buckets * heads),
            {}};
  }
  bool operator==(const RelativeBiasBackward&) const = default;
};

/// Joins attention of the same queries over disjoint keys: L = ln(e^lse + e^lse_new),
/// o ← o·e^(lse − L) + o_new·e^(lse_new − L), lse ← L; rows is batch·q.
/// Operands: o_new[batch, q, heads, dim] lse_new[batch, heads, q] → o lse (both updated).
struct MergeAttention {
  std::int64_t rows = 0;
  std::int64_t heads = 1;
  std::int64_t dim = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "merge_attention";
  static constexpr OpClass kClass = OpClass::Attention;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("heads", heads);
    v("dim", dim);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(rows * heads) * (4.0 * double(dim) + 10.0)},
            size_of(dtype, 2 * rows * heads * (dim + 1)),
            size_of(dtype, rows * heads * (dim + 1)),
            {}};
  }
  bool operator==(const MergeAttention&) const = default;
};

/// y[r,:] = softmax(scale·x[r,:]). Causal: only columns with col_positions[c] ≤ p = row_positions[r mod period] take
/// part, with a window those from p − window + 1 (chunked: ⌊p/window⌋·window) on; the others are 0.  Operands: x
/// [row_positions[period] col_positions[cols]] → y; y may be x.
struct SoftmaxForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  double scale = 1;
  std::int64_t period = 1;
  bool causal = false;
  std::int64_t window = 0;  // 0: none
  bool chunked = false;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "softmax";
  static constexpr OpClass kClass = OpClass::Attention;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("scale", scale);
    v("period", period);
    v("causal", causal);
    v("window", window);
    v("chunked", chunked);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{6.0 * double(rows * cols)}, size_of(dtype, rows * cols), size_of(dtype, rows * cols), {}};
  }
  bool operator==(const SoftmaxForward&) const = default;
};

/// dx = scale·y·(dy − Σ y·dy).  Operands: y dy → dx; dx may be dy.
struct SoftmaxBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  double scale = 1;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "softmax_backward";
  static constexpr OpClass kClass = OpClass::Attention;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("scale", scale);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{5.0 * double(rows * cols)}, size_of(dtype, 2 * rows * cols), size_of(dtype, rows * cols), {}};
  }
  bool operator==(const SoftmaxBackward&) const = default;
};

}  // namespace orrery
