// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/kinds/common.hpp"

// With `on_host` the cores of the node do the work, on operands in its memory; only single numbers (norms) may lie on
// the device.

namespace orrery {

/// norm2 += weight·Σ g²: a part of the squared global norm, kept in double.  Operands: g → norm2 (added to).
struct SumSquares {
  std::int64_t elements = 0;
  double weight = 1;
  DType dtype = DType::F32;
  bool on_host = false;

  static constexpr std::string_view kName = "sum_squares";
  static constexpr OpClass kClass = OpClass::Optimizer;
  template <class V>
  void visit(V&& v) const {
    v("elements", elements);
    v("weight", weight);
    v("dtype", dtype);
    v("on_host", on_host);
  }
  Amount amount(const Bindings&) const { return {Flops{2.0 * double(elements)}, size_of(dtype, elements), {}, {}}; }
  bool operator==(const SumSquares&) const = default;
};

/// g' = g·min(1, max_norm/‖g‖) + decay·w;  m = momentum·m + g';  w −= rate·m (nesterov: g' + momentum·m).
/// max_norm 0: no clipping; with `partly` only the first decayed[0] elements decay. Without momentum there is no m.
/// Operands: w g [m] [norm2] [decayed[1]] → w [m].
struct Sgd {
  std::int64_t elements = 0;
  double rate = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
  double decay = 0;
  double max_norm = 0;
  bool partly = false;
  DType dtype = DType::F32;
  bool on_host = false;

  static constexpr std::string_view kName = "sgd";
  static constexpr OpClass kClass = OpClass::Optimizer;
  template <class V>
  void visit(V&& v) const {
    v("elements", elements);
    v("rate", rate);
    v("momentum", momentum);
    v("nesterov", nesterov);
    v("decay", decay);
    v("max_norm", max_norm);
    v("partly", partly);
    v("dtype", dtype);
    v("on_host", on_host);
  }
  Amount amount(const Bindings&) const {
    const std::int64_t moments = has_velocity() ? 1 : 0;
    return {Flops{6.0 * double(elements)},
            size_of(dtype, (2 + moments) * elements),
            size_of(dtype, (1 + moments) * elements),
            {}};
  }
  bool has_velocity() const { return momentum != 0; }
  bool operator==(const Sgd&) const = default;
};

/// m = β₁m + (1 − β₁)g;  v = β₂v + (1 − β₂)g²;  w −= rate·(m̂/(√v̂ + ε) + decay·w), m̂ and v̂ corrected for the step (from
/// 1); g first scaled by min(1, max_norm/‖g‖), max_norm 0: no clipping. With `master` the arithmetic is on a copy of w
/// in the type of the states, and w is that copy rounded. In step 0, which a delayed update has, nothing changes. With
/// `partly` only the first decayed[0] elements decay.
/// Operands: w g m v [master] [norm2] [decayed[1]] → w m v [master].
struct AdamW {
  std::int64_t elements = 0;
  double rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0;
  double max_norm = 0;
  Extent step;
  bool master = false;
  bool partly = false;
  DType dtype = DType::F32;     // of w
  DType gradient = DType::F32;  // of g
  DType state = DType::F32;     // of m, v and the master copy
  bool narrow_moments = false;  // m and v in the type of w
  bool on_host = false;

  static constexpr std::string_view kName = "adamw";
  static constexpr OpClass kClass = OpClass::Optimizer;
  template <class V>
  void visit(V&& v) const {
    v("elements", elements);
    v("rate", rate);
    v("beta1", beta1);
    v("beta2", beta2);
    v("epsilon", epsilon);
    v("decay", decay);
    v("max_norm", max_norm);
    v("step", step);
    v("master", master);
    v("partly", partly);
    v("dtype", dtype);
    v("gradient", gradient);
    v("state", state);
    v("narrow_moments", narrow_moments);
    v("on_host", on_host);
  }
  DType moments() const { return narrow_moments ? dtype : state; }
  Amount amount(const Bindings&) const {
    const Bytes states = size_of(moments(), 2 * elements) + size_of(state, master ? elements : 0);
    return {Flops{14.0 * double(elements)},
            states + size_of(gradient, elements) + size_of(dtype, master ? 0 : elements),
            states + size_of(dtype, elements),
            {}};
  }
  bool operator==(const AdamW&) const = default;
};

}  // namespace orrery
