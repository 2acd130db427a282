// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/strategy/speculation/options.hpp"

namespace orrery {

/// A token tree without its tokens: node 0 is the root, the last token that is certain; parents come before children,
/// and the children of a node in order of their rank.
struct TreeShape {
  struct Node {
    std::int32_t parent = -1, rank = 0, depth = 0;
    bool operator==(const Node&) const = default;
  };
  std::vector<Node> nodes{Node{}};

  std::int64_t depth() const;
  /// Nodes of a depth, and those of them that have children.
  std::int64_t width(std::int64_t depth) const;
  std::int64_t expanded(std::int64_t depth) const;
  /// The most children that a node above `depth` has.
  std::int64_t choices(std::int64_t depth) const;
};

TreeShape chain_shape(std::int64_t depth);
/// The tree of `nodes` nodes (besides the root) with the most accepted tokens: node by node the one whose path is
/// likeliest to be right, at most `most` children each (Medusa's rule, arXiv 2401.10774).
TreeShape best_first_shape(const DraftAccuracy& accuracy, std::int64_t nodes, std::int64_t depth, std::int64_t most);
/// EAGLE's static tree of 25 nodes: 4, 8, 8, 3 and 2 at depths 1 to 5 (arXiv 2401.15077).
TreeShape eagle_shape();

/// 1 + Σ over nodes of the probability that their whole path is right.
double expected_tokens(const TreeShape& shape, const DraftAccuracy& accuracy);

/// Accuracy of the heads that Medusa's authors published for Vicuna 7B: what static trees are built from when nothing
/// is said.
DraftAccuracy medusa_accuracy();
/// Medusa's heads are as accurate as those, where nothing is said.
void set_usual_accuracy(SpeculateOptions& options);

/// How the work of a round is cut into passes, with everything that methods leave open filled in.
struct SpeculationLayout {
  TreeKind tree = TreeKind::Chain;
  TreeShape shape;                     // chain and static
  std::int64_t depth = 0, nodes = 0;   // most drafted one after another; most drafted
  std::int64_t width = 0;              // dynamic, beams
  std::vector<std::int64_t> choices;   // candidates of each expanded node, for depth 1, 2 …
  std::vector<std::int64_t> frontier;  // nodes of depth 1, 2 … that are expanded
  std::vector<std::int64_t> verified;  // sizes of verification passes with the root, rising
  std::int64_t start_rows = 1;         // tokens that the drafter catches up with before it drafts
  bool drawn = false;                  // drafts are drawn, else the most likely ones

  /// Rows of trees in the drafter's cache after the pass over nodes of a depth.
  std::int64_t slots(std::int64_t depth) const;
};

/// Throws UserError where a tree does not fit the method. `vocabulary`: tokens that can be drafted.
SpeculationLayout layout_of(const SpeculateOptions& options, double temperature, std::int64_t vocabulary);

}  // namespace orrery
