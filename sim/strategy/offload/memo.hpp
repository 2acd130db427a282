// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sim/base/units.hpp"

namespace orrery {

/// What MEMO (arXiv 2407.12117) swaps of one layer on one rank: some activations always, of the others the first part
/// of the tokens.
struct SwappedLayer {
  Bytes always, others;

  /// A GPT on a sequence of s tokens, h wide, in numbers of 16 bits, split over some ranks: in units of 2·b·s·h / ranks
  /// bytes its input and the output of attention always, and 14 others.
  static SwappedLayer of_gpt(double samples, double sequence, double hidden, double ranks) {
    const Bytes unit{2 * samples * sequence * hidden / ranks};
    return {2.0 * unit, 14.0 * unit};
  }
  Bytes bytes(double alpha) const { return always + alpha * others; }
};

/// What bounds the part of tokens that is swapped.
struct SwapBounds {
  double link = 0;  // hidden behind the forward pass of the next layer: α ≤ (T·B − always)/others
  double host = 0;  // fits into the memory of the host: α ≤ (M/(n − 2) − always)/others

  /// The largest α in [0, 1] that both allow.
  double alpha() const;
};

/// `forward`: of one layer; `to_host`: per rank while all copy; `host`: per rank. The last two of `layers` stay.
SwapBounds swap_bounds(const SwappedLayer& layer, std::int64_t layers, Seconds forward, BytesPerSecond to_host,
                       Bytes host);

}  // namespace orrery
