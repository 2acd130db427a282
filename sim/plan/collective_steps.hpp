// SPDX-License-Identifier: Apache-2.0
// Algorithms of collectives, each written once: the engine steps them, the runtime executes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "sim/base/options.hpp"
#include "sim/plan/kinds/collective.hpp"

namespace orrery {

/// How a collective is done. Not every kind can be done in every way: see `has_algorithm`.
enum class CollectiveAlgorithm : std::uint8_t { Auto, Ring, Tree, DoubleTree, Halving, Hierarchical, Direct, Bruck };
std::span<const EnumName<CollectiveAlgorithm>> enum_names(CollectiveAlgorithm);
std::string_view name_of(CollectiveAlgorithm a);
bool has_algorithm(CollectiveKind kind, CollectiveAlgorithm algorithm);
/// The one asked for, if the kind has it and `per_node` divides the members as it needs; else the usual one of the
/// kind: ring, direct for all-to-all, shift and barrier, tree for broadcast and reduce.
CollectiveAlgorithm usable_algorithm(CollectiveKind kind, CollectiveAlgorithm wanted, std::int64_t members,
                                     std::int64_t per_node);

/// All that the steps of a collective follow from. `elements` is the message as Collective counts it.
struct CollectiveShape {
  CollectiveKind kind = CollectiveKind::AllReduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Ring;
  std::int64_t members = 1, elements = 0;
  std::int32_t root = 0;      // as in Collective
  std::int64_t per_node = 1;  // Hierarchical: members of a node, which follow one another
  std::int64_t pieces = 1;    // Tree, DoubleTree and the rings of broadcast and reduce: of the message, in a pipeline
  bool in_place = false;      // the input lies in its place of the output
};

/// The shape of a collective of a plan. Pipelines have a piece per 512 KiB, at most 64.
CollectiveShape shape_of(const Collective& work, CollectiveAlgorithm algorithm, std::int64_t members,
                         std::int64_t per_node = 1);

/// The buffers of a member: its input, its output, and scratch of `stage_elements`.
enum class StepBuffer : std::uint8_t { In, Out, Stage };

/// Elements of a buffer in the order in which they are sent: runs of `run`, each `period` after the one before,
/// positions modulo `wrap`. A `run` of 0 is all in one.
struct StepSlot {
  StepBuffer buffer = StepBuffer::In;
  std::int64_t first = 0, count = 0;
  std::int64_t run = 0, period = 0, wrap = 0;
  bool operator==(const StepSlot&) const = default;
};

constexpr std::int32_t kNobody = -1;

/// One exchange of a member: it sends `source` to `to` while it gets `theirs`, which is the `source` of `from`, and
/// puts it, or own + theirs if it `reduces`, into `target`. It ends when both messages have been taken. The other side
/// does so in its step `to_step` or `from_step`. Without partners: copies `own` to `target`.
struct CollectiveStep {
  std::int32_t to = kNobody, from = kNobody;
  std::int32_t to_step = 0, from_step = 0, since = 0;
  StepSlot source, theirs, own, target;
  bool reduces = false;
  bool reuses =
      false;  // `target` overlaps what the step before has sent: for those who do not wait for that to be taken

  bool is_local() const { return to == kNobody && from == kNobody; }
};

/// Lanes of a member take their steps independently of one another: two for DoubleTree, else one.
int num_lanes(const CollectiveShape& shape);
/// Elements of scratch that each member needs.
std::int64_t stage_elements(const CollectiveShape& shape);

/// The steps of one lane of one member, each found in O(log n) from its number: no state but that.
///
///   kind            algorithm      exchanges of a member    elements that it sends (E the message, n members)
///   all_reduce      ring           2(n − 1)                 2·E(n − 1)/n
///                   halving        2⌈log₂ n⌉                2·E(n − 1)/n
///                   hierarchical   2(g − 1) + 2(n/g − 1)    2·E(n − 1)/n
///                   direct         2(n − 1)                 2·E(n − 1)/n
///                   tree           in pieces up and down a binary tree: E to each child and to the parent
///                   double_tree    the same for each half, on two trees: a leaf of one is inside of the other
///   all_gather      ring, direct   n − 1                    E(n − 1)/n
///                   halving        ⌈log₂ n⌉                 E(n − 1)/n      (doubling; for any n, as Bruck does)
///   reduce_scatter  the same backwards, with sums
///   all_to_all      direct         n − 1                    E(n − 1)/n      (pairwise)
///                   bruck          ⌈log₂ n⌉                 E/n for each place whose number has the bit of the step
///   broadcast       tree           ⌈log₂ n⌉ rounds          E to each child of a binomial tree
///                   ring           pieces + 1               E               (a pipeline)
///   reduce          the same backwards, with sums
///   shift           direct         1                        E
///   barrier         direct         ⌈log₂ n⌉                 0               (dissemination)
///
/// Sources: Thakur, Rabenseifner, Gropp 2005 (ring, halving, binomial trees); Bruck et al. 1997; Sanders, Speck, Träff
/// 2009 (two trees).
class CollectiveSteps {
 public:
  CollectiveSteps(const CollectiveShape& shape, std::int64_t member, int lane = 0);
  std::int64_t size() const;
  CollectiveStep operator[](std::int64_t k) const;

 private:
  CollectiveShape shape_;
  std::int64_t member_ = 0;
  int lane_ = 0;
  const struct StepAlgorithm* algorithm_ = nullptr;
};

/// Walks a slot: at any time a stretch of it lies in one piece.
class Stretches {
 public:
  explicit Stretches(const StepSlot& slot) : slot_{slot}, run_{slot.run > 0 ? slot.run : slot.count} {}

  std::int64_t left() const { return slot_.count - done_; }
  /// The next element, and how many follow it in one piece. Not when none is left.
  std::int64_t first() const {
    const std::int64_t at = slot_.first + done_ / run_ * slot_.period + done_ % run_;
    return slot_.wrap > 0 ? (at % slot_.wrap + slot_.wrap) % slot_.wrap : at;
  }
  std::int64_t length() const {
    const std::int64_t n = std::min(run_ - done_ % run_, left());
    return slot_.wrap > 0 ? std::min(n, slot_.wrap - first()) : n;
  }
  void skip(std::int64_t n) { done_ += n; }

 private:
  StepSlot slot_;
  std::int64_t run_, done_ = 0;
};

/// Calls f(element of a, element of b, element of c, how many) for stretches of three slots of one size.
template <class F>
void for_each_stretch(const StepSlot& a, const StepSlot& b, const StepSlot& c, F&& f) {
  for (Stretches x{a}, y{b}, z{c}; x.left() > 0;) {
    const std::int64_t n = std::min({x.length(), y.length(), z.length()});
    f(x.first(), y.first(), z.first(), n);
    x.skip(n), y.skip(n), z.skip(n);
  }
}

}  // namespace orrery
