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
/// sorted row of a choice (−1 when dropped over `capacity` per expert; 0: no capacity).  Operands: indices → offsets
/// source row.
struct RouteMap {
  std::int64_t tokens = 0;
  std::int64_t top_k = 1;
  std::int64_t experts = 0;
  std::int64_t capacity = 0;

  static constexpr std::string_view kName = "route_map";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("experts", experts);
    v("capacity", capacity);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(tokens * top_k)},
            size_of(DType::I32, tokens * top_k),
            size_of(DType::I32, 2 * tokens * top_k + experts + 1),
            {}};
  }
  bool operator==(const RouteMap&) const = default;
};

/// out[row,:] = x[source[row],:].  Operands: x source row → out; `row`, the inverse map, is for the gradient.
struct Permute {
  std::int64_t tokens = 0;
  std::int64_t top_k = 1;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "permute";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {{},
            size_of(dtype, tokens * top_k * cols) + size_of(DType::I32, tokens * top_k),
            size_of(dtype, tokens * top_k * cols),
            {}};
  }
  bool operator==(const Permute&) const = default;
};

/// dx[t,:] = Σ_j dout[row[t,j],:].  Operands: dout row → dx.
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

/// out[t,:] = Σ_j weights[t,j]·y[row[t,j],:].  Operands: y row weights → out.
struct Unpermute {
  std::int64_t tokens = 0;
  std::int64_t top_k = 1;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "unpermute";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("cols", cols);
    v("dtype", dtype);
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

  static constexpr std::string_view kName = "unpermute_backward";
  static constexpr OpClass kClass = OpClass::Routing;
  template <class V>
  void visit(V&& v) const {
    v("tokens", tokens);
    v("top_k", top_k);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{4.0 * double(tokens * top_k * cols)},
            size_of(dtype, tokens * (2 * top_k + 1) * cols) + size_of(DType::I32, tokens * top_k),
            size_of(dtype, tokens * top_k * (cols + 1)),
            {}};
  }
  bool operator==(const UnpermuteBackward&) const = default;
};

}  // namespace orrery
