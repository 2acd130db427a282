// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/model/model.hpp"
#include "sim/plan/kinds/common.hpp"

namespace orrery {

/// Chooses top_k of `experts` per token and their weights.  Operands: logits [bias] → probabilities weights indices.
struct TopKGate {
  std::int64_t tokens = 0;
  std::int64_t experts = 0;
  std::int64_t top_k = 1;
  RouterScore score = RouterScore::Softmax;
  bool normalise = true;
  double scaling = 1;
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  bool bias = false;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "top_k_gate";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("experts", experts);
    v("top_k", top_k);
    v("score", score);
    v("normalise", normalise);
    v("scaling", scaling);
    v("groups", groups);
    v("top_groups", top_groups);
    v("bias", bias);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{6.0 * double(tokens * experts)},
            size_of(dtype, tokens * experts),
            size_of(dtype, tokens * (experts + top_k)) + size_of(DType::I32, tokens * top_k),
            {}};
  }
  bool operator==(const TopKGate&) const = default;
};

/// Operands: probabilities indices dweights → dlogits.
struct TopKGateBackward {
  std::int64_t tokens = 0;
  std::int64_t experts = 0;
  std::int64_t top_k = 1;
  RouterScore score = RouterScore::Softmax;
  bool normalise = true;
  double scaling = 1;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "top_k_gate_backward";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("experts", experts);
    v("top_k", top_k);
    v("score", score);
    v("normalise", normalise);
    v("scaling", scaling);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{6.0 * double(tokens * experts)},
            size_of(dtype, tokens * (experts + top_k)) + size_of(DType::I32, tokens * top_k),
            size_of(dtype, tokens * experts),
            {}};
  }
  bool operator==(const TopKGateBackward&) const = default;
};

/// Stable counting sort of the tokens·top_k choices by expert. source[row] is the token of a sorted row, row[t, j] the
/// sorted row of a choice. With a `capacity` every expert has room for as many rows of each of `groups` equal runs of
/// tokens, [experts, groups, capacity]: a choice that finds no room has row −1, a row without a choice source −1.
/// Operands: indices → offsets source row.
struct RouteMap {
  std::int64_t tokens = 0;
  std::int64_t top_k = 1;
  std::int64_t experts = 0;
  std::int64_t capacity = 0;
  std::int64_t groups = 1;

  std::int64_t rows() const { return capacity > 0 ? experts * groups * capacity : tokens * top_k; }

  static constexpr std::string_view kName = "route_map";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("experts", experts);
    v("capacity", capacity);
    v("groups", groups);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(tokens * top_k)},
            size_of(DType::I32, tokens * top_k),
            size_of(DType::I32, rows() + tokens * top_k + experts + 1),
            {}};
  }
  bool operator==(const RouteMap&) const = default;
};

/// Rows sorted by expert, cut into parts for replicas: a row of `parts` [parts, 5] is (expert, a, b, n, r), a part that
/// has the a-th to before the b-th of n equal pieces of the rows of an expert, rows [o + ⌊(m·a + r)/n⌋, o + ⌊(m·b +
/// r)/n⌋) of its m rows from o on. With another r < n the odd rows go to other replicas. Spans are a first row and an
/// end.  Operands: offsets parts → spans.
struct SplitRoutes {
  std::int64_t experts = 0;
  std::int64_t parts = 0;

  static constexpr std::int64_t kColumns = 5;
  static constexpr std::string_view kName = "split_routes";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("experts", experts);
    v("parts", parts);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(6 * parts)},
            size_of(DType::I32, experts + 1 + kColumns * parts),
            size_of(DType::I32, 2 * parts),
            {}};
  }
  bool operator==(const SplitRoutes&) const = default;
};

/// Where the ranks of an expert axis send rows: `sent` [ranks, experts, 2] has the first row and the end of what each
/// rank sends to each expert of this one, in rows of that rank. They shall lie here in order of the experts, of each
/// in order of the ranks: `place` has the same in rows of this rank, offsets[e] the first row of an expert. At run time
/// more than `max_rows` in all are an error.  Operands: sent → place offsets.
struct MergeRoutes {
  std::int64_t ranks = 1;
  std::int64_t experts = 0;
  std::int64_t max_rows = 0;

  static constexpr std::string_view kName = "merge_routes";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("ranks", ranks);
    v("experts", experts);
    v("max_rows", max_rows);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(2 * ranks * experts)},
            size_of(DType::I32, 2 * ranks * experts),
            size_of(DType::I32, 2 * ranks * experts + experts + 1),
            {}};
  }
  bool operator==(const MergeRoutes&) const = default;
};

/// out[row,:] = x[source[row],:], zeros where the source is −1; `rows` of RouteMap, 0: tokens·top_k.  Operands: x
/// source row → out; `row`, the inverse map, is for the gradient.
struct Permute {
  std::int64_t tokens = 0;
  std::int64_t top_k = 1;
  std::int64_t cols = 0;
  DType dtype = DType::F32;
  std::int64_t rows = 0;

  std::int64_t sorted_rows() const { return rows > 0 ? rows : tokens * top_k; }

  static constexpr std::string_view kName = "permute";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("cols", cols);
    v("dtype", dtype);
    v("rows", rows);
  }
  Amount amount(const Bindings&) const {
    return {{},
            size_of(dtype, tokens * top_k * cols) + size_of(DType::I32, sorted_rows()),
            size_of(dtype, sorted_rows() * cols),
            {}};
  }
  bool operator==(const Permute&) const = default;
};

/// dx[t,:] = Σ_j dout[row[t,j],:] over choices that have a row.  Operands: dout row → dx.
struct PermuteBackward {
  std::int64_t tokens = 0;
  std::int64_t top_k = 1;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "permute_backward";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(tokens * top_k * cols)},
            size_of(dtype, tokens * top_k * cols) + size_of(DType::I32, tokens * top_k),
            size_of(dtype, tokens * cols),
            {}};
  }
  bool operator==(const PermuteBackward&) const = default;
};

/// out[t,:] = Σ_j weights[t,j]·y[row[t,j],:]; choices without a row add nothing.  Operands: y row weights → out.
struct Unpermute {
  std::int64_t tokens = 0;
  std::int64_t top_k = 1;
  std::int64_t cols = 0;
  DType dtype = DType::F32;
  std::int64_t rows = 0;  // of y; 0: tokens·top_k

  static constexpr std::string_view kName = "unpermute";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("cols", cols);
    v("dtype", dtype);
    v("rows", rows);
  }
  Amount amount(const Bindings&) const {
    return {Flops{2.0 * double(tokens * top_k * cols)},
            size_of(dtype, tokens * top_k * (cols + 1)) + size_of(DType::I32, tokens * top_k),
            size_of(dtype, tokens * cols),
            {}};
  }
  bool operator==(const Unpermute&) const = default;
};

/// Operands: y row weights dout → dy dweights.
struct UnpermuteBackward {
  std::int64_t tokens = 0;
  std::int64_t top_k = 1;
  std::int64_t cols = 0;
  DType dtype = DType::F32;
  std::int64_t rows = 0;  // of y; 0: tokens·top_k

  std::int64_t sorted_rows() const { return rows > 0 ? rows : tokens * top_k; }

  static constexpr std::string_view kName = "unpermute_backward";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("cols", cols);
    v("dtype", dtype);
    v("rows", rows);
  }
  Amount amount(const Bindings&) const {
    return {Flops{4.0 * double(tokens * top_k * cols)},
            size_of(dtype, tokens * (2 * top_k + 1) * cols) + size_of(DType::I32, tokens * top_k),
            size_of(dtype, sorted_rows() * cols + tokens * top_k),
            {}};
  }
  bool operator==(const UnpermuteBackward&) const = default;
};

}  // namespace orrery
