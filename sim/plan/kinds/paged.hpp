// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "sim/plan/kinds/attention.hpp"

namespace orrery {

/// Attention of new rows of several sequences over keys that lie in pages (blocks of `page` tokens of a pool). A
/// sequence has one new row when it decodes, several of its prompt else; its last new row sees all of its keys, each
/// row before it one less. How many there are is bound: `rows` and `sequences` are what there is room for.
///
/// q[rows,H,dk], pools k[pages·page,Hkv,dk] v[pages·page,Hkv,dv], table[sequences,max_pages] (which pages a sequence
/// has, in order), starts[sequences+1] (its first new row), lengths[sequences] (its keys). Rows that belong to no
/// sequence give 0. Operands: q k v table starts lengths → o[rows,H,dv].
struct PagedAttention {
  std::int64_t rows = 0, sequences = 1, heads = 1, kv_heads = 1, qk_dim = 0, v_dim = 0;
  std::int64_t page = 16, max_pages = 1;
  std::int64_t window = 0;  // sliding window in tokens; 0: none
  bool chunked = false;     // see AttentionShape
  double scale = 1;
  double cap = 0;  // see AttentionShape
  DType dtype = DType::F32;
  DType stored = DType::F32;  // type of keys and values in the pool
  // What is bound, see Symbol.
  Extent decodes{0, Symbol::Decodes}, decode_keys{0, Symbol::DecodeKeys};
  Extent prompts{0, Symbol::Prompts}, prompt_rows{0, Symbol::PromptRows}, prompt_keys{0, Symbol::PromptKeys},
      prompt_pairs{0, Symbol::PromptPairs};

  static constexpr std::string_view kName = "paged_attention";
  static constexpr OpClass kClass = OpClass::Attention;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("sequences", sequences);
    v("heads", heads);
    v("kv_heads", kv_heads);
    v("qk_dim", qk_dim);
    v("v_dim", v_dim);
    v("page", page);
    v("max_pages", max_pages);
    v("window", window);
    v("chunked", chunked);
    v("scale", scale);
    v("cap", cap);
    v("dtype", dtype);
    v("stored", stored);
    v("decodes", decodes);
    v("decode_keys", decode_keys);
    v("prompts", prompts);
    v("prompt_rows", prompt_rows);
    v("prompt_keys", prompt_keys);
    v("prompt_pairs", prompt_pairs);
  }

  /// Of what is bound as attention over even sequences: those that decode, and the prompts; a batch of 0 is nothing.
  /// Kernels take both at once or one after another. Keys of sequences are their mean. Decoding multiplies in the type
  /// of the pool: it is bound by reading it.
  std::array<AttentionShape, 2> parts(const Bindings& b) const {
    const auto shape = [&](std::int64_t batch, std::int64_t q, std::int64_t keys) {
      AttentionShape s{.batch = batch,
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .q = q,
                       .kv = batch > 0 ? (keys + batch - 1) / batch : 0,
                       .qk_dim = qk_dim,
                       .v_dim = v_dim,
                       .window = window,
                       .chunked = chunked,
                       .scale = scale,
                       .cap = cap,
                       .dtype = dtype};
      return s;
    };
    const std::int64_t n = prompts.at(b);
    AttentionShape prompt = shape(n, n > 0 ? (prompt_rows.at(b) + n - 1) / n : 0, prompt_keys.at(b));
    if (n > 0 && window == 0) prompt.visible = prompt_pairs.at(b) / n;
    AttentionShape decoding = shape(decodes.at(b), 1, decode_keys.at(b));
    decoding.dtype = stored;
    return {decoding, prompt};
  }

  Amount amount(const Bindings& b) const {
    double pairs = 0;
    std::int64_t q = 0, keys = 0;
    for (const AttentionShape& s : parts(b)) {
      if (s.batch == 0) continue;
      pairs += s.pairs(b);
      q += s.batch * s.q;
      keys += s.batch * s.keys_read(b);
    }
    return {Flops{2.0 * pairs * double(heads) * double(qk_dim + v_dim)},
            size_of(dtype, q * heads * qk_dim) + size_of(stored, keys * kv_heads * (qk_dim + v_dim)),
            size_of(dtype, q * heads * v_dim),
            {}};
  }
  bool operator==(const PagedAttention&) const = default;
};

/// table[index[r],:] = x[r,:] in order of r; −1 is left out. Keys and values of new rows go to their slots of a pool
/// so. `used` and `on_host` as in Gather.  Operands: x index → table (updated).
struct ScatterRows {
  std::int64_t rows = 0, cols = 0, table_rows = 0;
  DType dtype = DType::F32;
  Extent used;
  bool on_host = false;

  std::int64_t used_rows(const Bindings& b) const { return used_of(rows, used, b); }

  static constexpr std::string_view kName = "scatter_rows";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("table_rows", table_rows);
    v("dtype", dtype);
    v("used", used);
    v("on_host", on_host);
  }
  Amount amount(const Bindings& b) const {
    const std::int64_t n = used_rows(b);
    return {{}, size_of(dtype, n * cols) + size_of(DType::I32, n), size_of(dtype, n * cols), {}};
  }
  bool operator==(const ScatterRows&) const = default;
};

}  // namespace orrery
