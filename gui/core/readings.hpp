// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace orrery::gui {

/// An op of a sequence as the reading of two sequences sees it.
struct SequenceItem {
  std::uint64_t kind = 0;
  bool is_fused = false;  // its name says that it stands for several ops
  bool operator==(const SequenceItem& o) const { return kind == o.kind; }
};
using Sequence = std::vector<SequenceItem>;
using Places = std::vector<std::pair<std::size_t, std::size_t>>;

/// How two sequences may be the same work. A reading goes through both in order; its steps cost
///   0          an op for one of its kind,
///   2          an op that the other side does not have,
///   2          two neighbours of different kinds that changed places,
///   3          an op for one of another kind,
///   2 (k − 1)  k ops for one: a kernel that does more than its name says,
///   2 |k − 2|  k ops for one that is known to be fused.
/// What all readings have in common that cost at most 2 more than the best is sure. A kernel that contains its
/// neighbour costs as much as a neighbour that is missing: where an op is missing, what lies beside it is not sure to
/// be that op alone. The same holds beside neighbours that changed places: one may have been run together with what is
/// before it, and what looks like it be another op. Where ops of the same recording changed places (`Seen`), a kernel
/// that does several ops may have changed places with an op too, which then looks like one of those that it does; and
/// where one layer in twenty has ops that changed places and one in twenty has others than the other side, layers that
/// cost anything are read with a doubt of 4: three things done to a layer can look like one. `gui_readings_seeds_test`
/// counts what that finds in random layers.
struct Readings {
  /// `num_a` ops from `a` on are the `num_b` from `b` on; one of the numbers is 1.
  struct Run {
    std::size_t a = 0, num_a = 0, b = 0, num_b = 0;
  };
  /// How many layers were looked at, in how many the best readings have ops that changed places, and in how many the
  /// two sides have other ops: missing, added, fused or of another kind.
  struct Seen {
    std::uint64_t layers = 0, swapped = 0, changed = 0;
    Seen& operator+=(const Seen& o);
    bool operator==(const Seen&) const = default;
  };
  Places sure;             // op for op
  Places likely;           // op for op in all of the best readings, but it is open whether that is all of it
  std::vector<Run> fused;  // sure as well
  Seen seen;
};
/// `longest_run` is the largest k; with 1 an op has a partner of its kind in order or none. Sequences that are too long
/// for a table are compared by kinds that occur once: all of those are likely. `elsewhere` is what other layers of the
/// recording show.
Readings readings(const Sequence& a, const Sequence& b, std::size_t longest_run, const Readings::Seen& elsewhere = {});

}  // namespace orrery::gui
