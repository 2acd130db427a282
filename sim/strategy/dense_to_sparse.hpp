// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "sim/base/options.hpp"
#include "sim/plan/kinds/routing.hpp"

namespace orrery {

/// How the temperature of a gate falls; by what the rows of experts are weighted; how rows get to experts.
enum class TemperatureDecay : std::uint8_t { Exponential, Linear };
enum class GateWeights : std::uint8_t { Gumbel, Softmax };
enum class GateDispatch : std::uint8_t { Sparse, Dense };

inline std::span<const EnumName<TemperatureDecay>> enum_names(TemperatureDecay) {
  static constexpr EnumName<TemperatureDecay> names[] = {{TemperatureDecay::Exponential, "exponential"},
                                                         {TemperatureDecay::Linear, "linear"}};
  return names;
}
inline std::span<const EnumName<GateWeights>> enum_names(GateWeights) {
  static constexpr EnumName<GateWeights> names[] = {{GateWeights::Gumbel, "gumbel"}, {GateWeights::Softmax, "softmax"}};
  return names;
}
inline std::span<const EnumName<GateDispatch>> enum_names(GateDispatch) {
  static constexpr EnumName<GateDispatch> names[] = {{GateDispatch::Sparse, "sparse"}, {GateDispatch::Dense, "dense"}};
  return names;
}

/// The dense-to-sparse gate in training (arXiv 2112.14397, its released code): see SparseGate. A model that is trained
/// so chooses one expert by softmax where it is not trained. Dispatch: `sparse` moves the rows of the choices; `dense`,
/// as the released code does, multiplies rows with masks [experts · tokens, tokens], gives each expert room for all
/// tokens and multiplies all of it.
struct DenseToSparseOptions {
  TemperatureDecay decay = TemperatureDecay::Exponential;
  double tau_max = 1, tau_min = 0.5;
  std::int64_t updates = 1;
  std::optional<std::int64_t> hard_from;
  double threshold = 0.001;
  GateWeights weights = GateWeights::Gumbel;
  GateDispatch dispatch = GateDispatch::Sparse;
  std::int64_t update = 0;
  double spread = 1, buffer = 0;

  template <class V>
  void visit(V& v) {
    v.field("decay", decay, "of the temperature, from tau_max to tau_min");
    v.field("tau_max", tau_max, "temperature at update 0", more_than(0));
    v.field("tau_min", tau_min, "temperature from update `updates` on, at most tau_max", more_than(0));
    v.required("updates", updates, "updates in which the temperature falls", at_least(1));
    v.field("hard_from", hard_from, "update from which a token visits the expert of the largest weight alone",
            at_least(0));
    v.field("threshold", threshold, "a token visits the experts whose weight is above it",
            {.min = 0, .max = 1, .above_min = true, .below_max = true});
    v.field("weights", weights,
            "of rows: those that choose, with noise and temperature (gumbel), or without (softmax)");
    v.field("dispatch", dispatch,
            "sparse: rows of choices are moved; dense: rows are multiplied with masks, and experts compute all tokens");
    v.field("update", update, "of the first step; amounts are those of this update", at_least(0));
    v.field("spread", spread, "standard deviation of a token's logits, for expected amounts", at_least(0));
    v.field("buffer", buffer,
            "sparse: rows of choices that there is room for, over those expected; 0: every token may visit all experts",
            at_least(0));
  }

  bool is_hard() const { return hard_from && update >= *hard_from; }
  /// Experts that a token visits at most from `update` on.
  std::int64_t choices(std::int64_t experts) const { return is_hard() ? 1 : experts; }
  /// The gate of a plan whose step is bound from 1 on; without its place in the streams of random numbers.
  SparseGate gate() const;
};

/// Expected experts above `threshold` at temperature tau, for independent normal logits of standard deviation `spread`:
/// the mean of 2^14 seeded draws of a token. Left out: what training does to logits (their spread grows, experts become
/// correlated).
double expected_active(std::int64_t experts, double tau, double spread, double threshold);

/// What a step knows of its gates: of each number of experts how many a token is expected to visit.
struct SparseGating {
  DenseToSparseOptions options;
  std::map<std::int64_t, double> active;

  void add(std::int64_t experts);
  /// Rows that tokens are expected to send to experts.
  std::int64_t rows(std::int64_t tokens, std::int64_t experts) const;
  /// Rows that there is room for.
  std::int64_t room(std::int64_t tokens, std::int64_t experts) const;
  bool is_dense() const { return options.dispatch == GateDispatch::Dense; }
};

}  // namespace orrery
