// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/strategy/lengths.hpp"
#include "sim/strategy/packing/packing.hpp"

namespace orrery {

/// How the samples of a training step come to be: windows of documents, each as long as a sample.
struct PackingOptions {
  PackerKind packer = PackerKind::BestFit;
  LengthOptions lengths;
  bool mask = true, padding = true, balance = false;
  std::int64_t steps = 20;

  template <class V>
  void visit(V& v) {
    v.field("packer", packer, "how documents come into windows of `sequence` tokens: see `orrery pack`");
    v.required("lengths", lengths, "tokens of a document: a distribution, or a file of lengths that it is drawn from");
    v.field("mask", mask,
            "a token sees its own document alone, and positions begin anew with each; else it sees all of its window "
            "that lies in front of it");
    v.field("padding", padding,
            "what documents leave of a window is padding, which is computed and learns nothing; else it is filled with "
            "parts of others, which are cut");
    v.field("balance", balance,
            "windows that cost attention alike are in one step, and its ranks of data get equal shares of that cost");
    v.field("steps", steps, "steps whose windows are drawn, then come again; predictions are of their mean",
            between(1, 10000));
  }
};

/// Documents that are drawn, and windows of them: those of whole steps, rank by rank in each (PackRequest).
struct PackedSamples {
  std::vector<std::int64_t> lengths;
  std::vector<PackedWindow> windows;
};

/// Which ranks of data get which windows, and when they wait for each other.
struct PackedStep {
  std::int64_t window = 1;               // tokens
  std::int64_t ranks = 1, per_rank = 1;  // that have samples of their own; windows of each in a step
  std::int64_t together = 1;             // windows of a rank between two places where ranks wait for each other
  std::uint64_t seed = 1;
};

/// Draws documents for so many steps and packs them. Throws OptionError where the packer needs to know more of
/// documents than lengths, or leaves padding by its nature and there is to be none.
PackedSamples packed_samples(const PackingOptions& options, const PackedStep& step);

/// What windows are, in the mean over all that are drawn.
struct PackedAmounts {
  double tokens = 1;           // share of all places
  double needed = 1;           // pairs of a query and a key that tokens need, over those that are computed
  std::int64_t documents = 0;  // of a window that is masked; 0: none is
  /// Pairs that a window leaves to attention, where no rank has more between two waits, and for the others: what
  /// waits come to is the mean over steps of the most that a rank has.
  std::int64_t slowest = 0, others = 0;

  bool is_even() const { return slowest == others; }
};

PackedAmounts packed_amounts(const PackingOptions& options, const PackedStep& step);

}  // namespace orrery
