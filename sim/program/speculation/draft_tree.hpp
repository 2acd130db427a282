// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/strategy/speculation/token_tree.hpp"

namespace orrery {

/// One drafted token.
struct DraftNode {
  std::int32_t parent = -1, token = 0, depth = 0;
  std::int32_t shape = -1;      // the node of the layout's shape, where trees always branch the same way
  double value = 1;             // product of the drafter's probabilities on the path
  std::int32_t draft_row = -1;  // distribution that the token was drawn from; −1: it was certain
  std::int32_t row = 0;         // state and distribution that its own children come from
  std::int32_t place = -1;      // among the nodes of its depth that are expanded
};

/// The tokens drafted for one sequence in one round, grown level by level.
///   chain, static  as the layout's shape says
///   dynamic        all candidates join, the `width` nodes of a level with the best paths are expanded; in the end the
///                  `nodes` best paths stay (EAGLE-2, arXiv 2406.16858)
///   beams          the same, but only the paths that reach the last level stay
///   caterpillar    the best token goes on, beside it 7, 5, 3 or 1 alternatives where its probability is up to 0.3,
///   0.6,
///                  0.8 or 1 (CaPE, arXiv 2402.02082)
///   budget         candidates up to `top_p` together and not below `least_share` of the first, the likeliest paths
///                  first, while the budget of `nodes` lasts (Clover, arXiv 2405.00263)
class DraftTree {
 public:
  DraftTree(const SpeculationLayout& layout, const SpeculateOptions& options, std::int32_t root);

  /// Nodes to expand next, in order of the rows of the drafter's next pass.
  const std::vector<std::int32_t>& frontier() const { return frontier_; }
  /// Gives the nodes of the frontier children out of `k` candidates each, in falling order. `drawn_from[i]`: the
  /// distribution behind the candidates of the i-th, −1: none.
  void expand(std::int64_t k, std::span<const std::int32_t> tokens, std::span<const double> probabilities,
              std::span<const std::int32_t> drawn_from);
  /// Drops what does not go into verification.
  void finish();
  const std::vector<DraftNode>& nodes() const { return nodes_; }
  std::vector<DraftNode>& nodes() { return nodes_; }

 private:
  std::vector<std::int32_t> beams() const;
  /// Drops all other nodes; parents of kept ones are among them.
  void keep(std::vector<std::int32_t> order);
  std::int32_t add(std::int32_t parent, std::int32_t token, double probability, std::int32_t drawn_from);
  void expand_shape(std::int32_t node, std::span<const std::int32_t> tokens, std::span<const double> probabilities,
                    std::int32_t drawn_from, std::vector<std::int32_t>& next);
  void expand_budget(std::int64_t k, std::span<const std::int32_t> tokens, std::span<const double> probabilities,
                     std::vector<std::int32_t>& next);

  const SpeculationLayout* layout_;
  const SpeculateOptions* options_;
  std::vector<DraftNode> nodes_;
  std::vector<std::int32_t> frontier_;
};

/// Alternatives beside a token of this probability in a caterpillar.
std::int64_t alternatives(double probability);

}  // namespace orrery
