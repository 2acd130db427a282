// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/model/model.hpp"
#include "sim/plan/kinds/common.hpp"

namespace orrery {

/// A gate that begins dense and ends sparse (dense-to-sparse gate, arXiv 2112.14397): with g = softmax((logits + Gumbel
/// noise)/τ) a token visits every expert whose g is above `threshold`, and from update `hard_from` on only the one with
/// the largest. τ falls from tau_max over `updates` updates and stays at tau_min: exponentially τ = tau_max ·
/// (tau_min/tau_max)^(t/updates), or in equal steps. Weights are the g of the visited experts, or their softmax(logits)
/// (`weighs_plain`). Noise −ln(−ln u) is drawn from a counter-based generator at the token's number in the whole batch
/// and the expert, as Dropout draws.
struct SparseGate {
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  double threshold = 0;  // 0: no such gate
  double tau_max = 1;
  double tau_min = 1;
  std::int64_t updates = 1;
  bool linear = false;
  std::int64_t hard_from = kNever;
  bool weighs_plain = false;
  std::int64_t seed = 0;
  std::int64_t stream = 0;
  std::int64_t first_row = 0;
  bool by_row = false;
  Extent update;

  explicit operator bool() const { return threshold > 0; }
  bool is_hard(std::int64_t at) const { return at >= hard_from; }
  double temperature(std::int64_t at) const {
    const double part = double(at) / double(updates);
    return std::max(tau_min,
                    linear ? tau_max - part * (tau_max - tau_min) : tau_max * std::pow(tau_min / tau_max, part));
  }
  template <class V>
  void visit(V&& v) const {
    v("threshold", threshold);
    v("tau_max", tau_max);
    v("tau_min", tau_min);
    v("updates", updates);
    v("linear", linear);
    v("hard_from", hard_from);
    v("weighs_plain", weighs_plain);
    v("seed", seed);
    v("stream", stream);
    v("first_row", first_row);
    v("by_row", by_row);
    v("update", update);
  }
  bool operator==(const SparseGate&) const = default;
};

/// Chooses top_k of `experts` per token and their weights; a sparse gate as many as are above its threshold, in order
/// of the experts, with index −1 and weight 0 behind them.  Operands: logits [bias] [row_ids] → probabilities weights
/// indices, with a sparse gate whatever it weighs by in place of probabilities.
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
  SparseGate sparse = {};

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
    sparse.visit(v);
  }
  Amount amount(const Bindings&) const {
    return {Flops{(sparse ? 20.0 : 6.0) * double(tokens * experts)},
            size_of(dtype, tokens * experts),
            size_of(dtype, tokens * (experts + top_k)) + size_of(DType::I32, tokens * top_k),
            {}};
  }
  bool operator==(const TopKGate&) const = default;
};

/// With a sparse gate the factor of its weights is 1/τ in place of `scaling`.  Operands: probabilities indices dweights
/// → dlogits.
struct TopKGateBackward {
  std::int64_t tokens = 0;
  std::int64_t experts = 0;
  std::int64_t top_k = 1;
  RouterScore score = RouterScore::Softmax;
  bool normalise = true;
  double scaling = 1;
  DType dtype = DType::F32;
  SparseGate sparse = {};

  double factor(std::int64_t update) const {
    return !sparse ? scaling : sparse.weighs_plain ? 1 : 1 / sparse.temperature(update);
  }

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
    sparse.visit(v);
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
/// tokens, [experts, groups, capacity]: a choice that finds no room has row −1, a row without a choice source −1. So
/// have choices of no expert (index −1), of which `filled` are expected to be of one, and there is room for `max_rows`
/// of them: more is an error at run time.  Operands: indices → offsets source row.
struct RouteMap {
  std::int64_t tokens = 0;
  std::int64_t top_k = 1;
  std::int64_t experts = 0;
  std::int64_t capacity = 0;
  std::int64_t groups = 1;
  std::int64_t max_rows = 0;  // without a capacity; 0: all choices have one
  std::int64_t filled = 0;    // 0: all choices

  std::int64_t rows() const {
    return capacity > 0 ? experts * groups * capacity : max_rows > 0 ? max_rows : tokens * top_k;
  }

  static constexpr std::string_view kName = "route_map";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("experts", experts);
    v("capacity", capacity);
    v("groups", groups);
    v("max_rows", max_rows);
    v("filled", filled);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(tokens * top_k)},
            size_of(DType::I32, tokens * top_k),
            size_of(DType::I32, (filled > 0 ? filled : rows()) + tokens * top_k + experts + 1),
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

/// Rows of tokens that their choices fill, where not all do; see RouteMap. What lies behind them nobody reads.
constexpr std::int64_t filled_rows(std::int64_t filled, std::int64_t choices) { return filled > 0 ? filled : choices; }

/// out[row,:] = x[source[row],:], zeros where the source is −1; `rows` and `filled` of RouteMap, 0: tokens·top_k.
/// Operands: x source row → out; `row`, the inverse map, is for the gradient.
struct Permute {
  std::int64_t tokens = 0;
  std::int64_t top_k = 1;
  std::int64_t cols = 0;
  DType dtype = DType::F32;
  std::int64_t rows = 0;
  std::int64_t filled = 0;

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
    v("filled", filled);
  }
  Amount amount(const Bindings&) const {
    const std::int64_t written = filled_rows(filled, sorted_rows());
    return {{},
            size_of(dtype, filled_rows(filled, tokens * top_k) * cols) + size_of(DType::I32, written),
            size_of(dtype, written * cols),
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
  std::int64_t filled = 0;

  static constexpr std::string_view kName = "permute_backward";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("cols", cols);
    v("dtype", dtype);
    v("filled", filled);
  }
  Amount amount(const Bindings&) const {
    const std::int64_t n = filled_rows(filled, tokens * top_k);
    return {Flops{double(n * cols)},
            size_of(dtype, n * cols) + size_of(DType::I32, tokens * top_k),
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
  std::int64_t filled = 0;

  static constexpr std::string_view kName = "unpermute";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("cols", cols);
    v("dtype", dtype);
    v("rows", rows);
    v("filled", filled);
  }
  Amount amount(const Bindings&) const {
    const std::int64_t n = filled_rows(filled, tokens * top_k);
    return {Flops{2.0 * double(n * cols)},
            size_of(dtype, n * cols + tokens * top_k) + size_of(DType::I32, tokens * top_k),
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
  std::int64_t filled = 0;

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
    v("filled", filled);
  }
  Amount amount(const Bindings&) const {
    const std::int64_t n = filled_rows(filled, tokens * top_k);
    return {Flops{4.0 * double(n * cols)},
            size_of(dtype, (2 * n + tokens) * cols) + size_of(DType::I32, tokens * top_k),
            size_of(dtype, filled_rows(filled, sorted_rows()) * cols + tokens * top_k),
            {}};
  }
  bool operator==(const UnpermuteBackward&) const = default;
};

}  // namespace orrery
