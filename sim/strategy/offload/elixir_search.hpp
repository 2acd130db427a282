// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/base/units.hpp"

namespace orrery {

/// What Elixir's hardware profiler measures, of all ranks of a node together.
struct ElixirProfile {
  double to_device = 0, to_host = 0;           // bytes per second
  double host_adam = 0, device_adam = 0;       // parameters per second
  static ElixirProfile of_a100(double ranks);  // the constants of the published code
};

/// The same as options; what is 0 is as the authors measured it.
struct ProfileOptions {
  BytesPerSecond to_device{0}, to_host{0};
  double host_adam = 0, device_adam = 0;

  template <class V>
  void visit(V& v) {
    v.field("to_device", to_device, "copies from the host to all devices of the node; 0: as the authors measured",
            at_least(BytesPerSecond{0}));
    v.field("to_host", to_host, "copies the other way; 0: as the authors measured", at_least(BytesPerSecond{0}));
    v.field("host_adam", host_adam, "parameters per second that the host updates; 0: as the authors measured",
            at_least(0));
    v.field("device_adam", device_adam, "parameters per second that all devices update; 0: as the authors measured",
            at_least(0));
  }
  ElixirProfile over_a100(double ranks) const;
};

/// Seconds that one more element saves, in 1e-9: cached in a block, or spent on states that stay on the device.
struct ElixirValues {
  double cached = 0, state = 0;
};
/// I(n) = e_p/to_device + e_p/to_host;  J(n) = n/r·(e_o/to_device + I + e_p/to_host + 1/host_adam − 1/device_adam) with
/// e_p bytes of a weight, e_o of its master copy, r = (e_p + states)/e_p.
ElixirValues elixir_values(const ElixirProfile& profile, double ranks, double weight_bytes, double master_bytes,
                           double state_bytes);

/// What the search decides from. Elements are those of weights.
struct ElixirCase {
  std::vector<std::int64_t> tensors;              // elements; in the order in which they are packed
  std::vector<bool> alone;                        // used by several modules: not packed, not cached
  std::vector<std::vector<std::uint32_t>> steps;  // tensors that each op touches, in order
  std::int64_t capacity = 0;                      // elements of room on the device for blocks and what stays
  std::int64_t least = 0;                         // elements of the smallest chunk, doubled until a tensor fits
  std::int64_t grain = 512;                       // the fewest elements between two sizes
  std::int64_t region = 0;                        // elements of the largest part that is run again in one go
  double state_ratio = 7;                         // r
  double scratch = 0;                             // chunks of room that an arriving master copy takes
  std::int64_t ranks = 1;
  bool overlap = true;
  bool states_first = false;  // J > I
};

struct ElixirChoice {
  std::int64_t chunk = 0, blocks = 0, resident = 0;  // elements; of the cache; chunks whose states stay
  std::int64_t moved = 0;                            // elements that the cache moves in a step, as the search counts
};

/// The size of a chunk that moves least, of those between the smallest and three times as much, and what the memory is
/// spent on. Sizes that leave no room for the largest op are passed over; `blocks` 0: none is left.
ElixirChoice elixir_search(const ElixirCase& c);

/// What the memory is spent on with chunks of this size, `chunks` of which are packed.
void elixir_spend(const ElixirCase& c, std::int64_t chunks, std::int64_t least_blocks, ElixirChoice& choice);

}  // namespace orrery
