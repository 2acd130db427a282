// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/kinds/common.hpp"

namespace orrery {

/// out[r,:] = table[index[r],:]; an index outside [first, last) gives zeros (vocabulary shards; −1 pads). Where `used`
/// is bound, the first rows only (see used_of). With `on_host` the cores of the node do it in its memory. Operands:
/// table index → out.
struct Gather {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t table_rows = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  DType dtype = DType::F32;
  Extent used;
  bool on_host = false;

  std::int64_t used_rows(const Bindings& b) const { return used_of(rows, used, b); }

  static constexpr std::string_view kName = "gather";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("table_rows", table_rows);
    v("first", first);
    v("last", last);
    v("dtype", dtype);
    v("used", used);
    v("on_host", on_host);
  }
  Amount amount(const Bindings& b) const {
    const std::int64_t n = used_rows(b);
    return {{}, size_of(dtype, n * cols) + size_of(DType::I32, n), size_of(dtype, n * cols), {}};
  }
  bool operator==(const Gather&) const = default;
};

/// table[index[r],:] += x[r,:], in order of r.  Operands: x index → table.
struct ScatterAdd {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t table_rows = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "scatter_add";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("table_rows", table_rows);
    v("first", first);
    v("last", last);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(rows * cols)},
            size_of(dtype, 2 * rows * cols) + size_of(DType::I32, rows),
            size_of(dtype, rows * cols),
            {}};
  }
  bool operator==(const ScatterAdd&) const = default;
};

/// Which rows leave a cache for others: the least frequent of the data set, or those that were used least since they
/// came.
enum class EvictionPolicy : std::uint8_t { Dataset, Lfu };

/// Brings the maps of a cache of rows up to a batch and finds the slots of its ids (the frequency-aware cache of arXiv
/// 2208.05321): victims give up their slots, missed rows take slots, then slots[i] is where row ids[i] lies; an id
/// without a slot is an error. A row has a rank by how often it is used, the most frequent one 0. Who leaves and what
/// comes is the Program's: `policy`, `warm` (rows that the first step loads ahead, the most frequent ones) and
/// `batches` (steps whose rows come together) are what it goes by. With Lfu `uses` counts the lookups of each slot
/// since its row came. Work: ids and maps read once, and sorted once as unique ids are found so; the policy reads its
/// map of slots where rows leave. Operands: ids[lookups] ranks[rows] missed[slots] missed_slots[slots]
/// victim_slots[slots] → slot_of_rank[rows] rank_of_slot[slots] [uses[slots]] slots[lookups]; the maps, of 64-bit
/// integers counted from 1 (0: none), are updated.
struct AdmitRows {
  std::int64_t lookups = 0;
  std::int64_t rows = 0;
  std::int64_t slots = 0;
  EvictionPolicy policy = EvictionPolicy::Dataset;
  std::int64_t warm = 0;
  std::int64_t batches = 1;
  Extent misses{0, Symbol::CacheMisses}, victims{0, Symbol::CacheVictims};

  static constexpr std::string_view kName = "admit_rows";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("lookups", lookups);
    v("rows", rows);
    v("slots", slots);
    v("policy", policy);
    v("warm", warm);
    v("batches", batches);
    v("misses", misses);
    v("victims", victims);
  }
  Amount amount(const Bindings& b) const {
    const std::int64_t come = misses.at(b), leave = victims.at(b);
    return {Flops{double(lookups + come + leave)},
            size_of(DType::I32, lookups + 2 * come + leave) +
                size_of(DType::I64, 4 * lookups + come + leave + (leave > 0 ? slots : 0)),
            size_of(DType::I32, lookups) + size_of(DType::I64, 2 * lookups + 2 * come + 2 * leave),
            {}};
  }
  bool operator==(const AdmitRows&) const = default;
};

/// Rotates, in place, pairs of the first rot_dim of head_dim numbers by the angle of the position start + r mod
/// sequence, or of the one that an operand gives; `inverse` rotates back (the backward pass).  Operands: cos sin
/// [positions[rows]] → x[rows, heads, head_dim] (updated).
struct RotaryEmbedding {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rot_dim = 0;
  std::int64_t sequence = 0;
  Extent start;
  bool interleaved = false;
  bool inverse = false;
  bool positions = false;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "rope";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("heads", heads);
    v("head_dim", head_dim);
    v("rot_dim", rot_dim);
    v("sequence", sequence);
    v("start", start);
    v("interleaved", interleaved);
    v("inverse", inverse);
    v("positions", positions);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{6.0 * double(rows * heads * rot_dim)},
            size_of(dtype, rows * heads * head_dim),
            size_of(dtype, rows * heads * head_dim),
            {}};
  }
  bool operator==(const RotaryEmbedding&) const = default;
};

/// out[b,:] = Σ table[index[i],:] over the bag of b.  Operands: table index offsets → out.
struct EmbeddingBagForward {
  std::int64_t bags = 0;
  std::int64_t lookups = 0;
  std::int64_t cols = 0;
  std::int64_t table_rows = 0;
  bool mean = false;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "embedding_bag";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("bags", bags);
    v("lookups", lookups);
    v("cols", cols);
    v("table_rows", table_rows);
    v("mean", mean);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(lookups * cols)},
            size_of(dtype, lookups * cols) + size_of(DType::I32, lookups + bags),
            size_of(dtype, bags * cols),
            {}};
  }
  bool operator==(const EmbeddingBagForward&) const = default;
};

/// Operands: dout index offsets → dtable (added to).
struct EmbeddingBagBackward {
  std::int64_t bags = 0;
  std::int64_t lookups = 0;
  std::int64_t cols = 0;
  std::int64_t table_rows = 0;
  bool mean = false;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "embedding_bag_backward";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("bags", bags);
    v("lookups", lookups);
    v("cols", cols);
    v("table_rows", table_rows);
    v("mean", mean);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(lookups * cols)},
            size_of(dtype, lookups * cols + bags * cols) + size_of(DType::I32, lookups + bags),
            size_of(dtype, lookups * cols),
            {}};
  }
  bool operator==(const EmbeddingBagBackward&) const = default;
};

/// DLRM: x[batch, features, dim] → [dim + features·(features − 1)/2] per sample: the first feature, then all pairwise
/// dots. Operands: x → out.
struct DotInteractionForward {
  std::int64_t batch = 0;
  std::int64_t features = 0;
  std::int64_t dim = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "dot_interaction";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("batch", batch);
    v("features", features);
    v("dim", dim);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(batch * features * (features - 1) * dim)},
            size_of(dtype, batch * features * dim),
            size_of(dtype, batch * (dim + features * (features - 1) / 2)),
            {}};
  }
  bool operator==(const DotInteractionForward&) const = default;
};

/// Operands: x dout → dx.
struct DotInteractionBackward {
  std::int64_t batch = 0;
  std::int64_t features = 0;
  std::int64_t dim = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "dot_interaction_backward";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("batch", batch);
    v("features", features);
    v("dim", dim);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{2.0 * double(batch * features * (features - 1) * dim)},
            size_of(dtype, batch * (features * dim + dim + features * (features - 1) / 2)),
            size_of(dtype, batch * features * dim),
            {}};
  }
  bool operator==(const DotInteractionBackward&) const = default;
};

/// Indices as a shard of a table counts them: i − first[0] inside of [0, classes), −1 outside; a negative index stays
/// as it is.  Operands: index[rows] first[1] → local[rows].
struct LocalIndices {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  DType dtype = DType::I32;

  static constexpr std::string_view kName = "local_indices";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("classes", classes);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(rows)}, size_of(dtype, rows + 1), size_of(dtype, rows), {}};
  }
  bool operator==(const LocalIndices&) const = default;
};

}  // namespace orrery
