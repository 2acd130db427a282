// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/plan/kinds/speculation.hpp"

namespace orrery {

/// Who drafts the tokens that the model verifies.
enum class DraftMethod : std::uint8_t { Draft, Skip, Medusa, Hydra, Eagle, Eagle3, Glide, Clover };
/// How drafted tokens become a tree. Auto: as the method's authors have it.
enum class TreeKind : std::uint8_t { Auto, Chain, Static, Dynamic, Beams, Caterpillar, Budget };

inline std::span<const EnumName<DraftMethod>> enum_names(DraftMethod) {
  static constexpr EnumName<DraftMethod> names[] = {
      {DraftMethod::Draft, "draft"}, {DraftMethod::Skip, "skip"},     {DraftMethod::Medusa, "medusa"},
      {DraftMethod::Hydra, "hydra"}, {DraftMethod::Eagle, "eagle"},   {DraftMethod::Eagle3, "eagle3"},
      {DraftMethod::Glide, "glide"}, {DraftMethod::Clover, "clover"},
  };
  return names;
}
inline std::span<const EnumName<TreeKind>> enum_names(TreeKind) {
  static constexpr EnumName<TreeKind> names[] = {
      {TreeKind::Auto, "auto"},       {TreeKind::Chain, "chain"}, {TreeKind::Static, "static"},
      {TreeKind::Dynamic, "dynamic"}, {TreeKind::Beams, "beams"}, {TreeKind::Caterpillar, "caterpillar"},
      {TreeKind::Budget, "budget"},
  };
  return names;
}
inline std::span<const EnumName<AcceptanceRule>> enum_names(AcceptanceRule) {
  static constexpr EnumName<AcceptanceRule> names[] = {{AcceptanceRule::Greedy, "greedy"},
                                                       {AcceptanceRule::Rejection, "rejection"},
                                                       {AcceptanceRule::Typical, "typical"}};
  return names;
}

/// The network of a drafter that has blocks of its own. What is left at 0 is that of the model.
struct DraftNetwork {
  std::int64_t layers = 1, hidden = 0, heads = 0, kv_heads = 0, intermediate = 0;
  std::int64_t vocabulary = 0;

  template <class V>
  void visit(V& v) {
    v.field("layers", layers, "blocks of the drafter; skip: blocks of the model that it runs", between(1, 4096));
    v.field("hidden", hidden, "draft and glide: width; 0: the model's", at_least(0));
    v.field("heads", heads, "heads; 0: the model's", at_least(0));
    v.field("kv_heads", kv_heads, "heads of keys and values; 0: as many as the model has, or `heads`", at_least(0));
    v.field("intermediate", intermediate, "width of the feed-forward network; 0: the model's", at_least(0));
    v.field("vocabulary", vocabulary, "eagle3: only so many tokens, the first ones, can be drafted; 0: all",
            at_least(0));
  }
};

/// How likely drafted tokens are to be right where no model says so: in simulations, and in runs with `synthetic`.
struct DraftAccuracy {
  std::vector<std::vector<double>> hits;
  double alpha = 0, beta = 0;
  std::vector<double> tail;

  /// Probability that choice k (from 0) at depth d (from 1) is right, those before it on the path being right.
  double hit(std::int64_t depth, std::int64_t k) const {
    if (hits.empty()) return 0;
    const auto& row = hits[static_cast<std::size_t>(std::min<std::int64_t>(depth, std::ssize(hits)) - 1)];
    const auto i = static_cast<std::size_t>(k);
    if (i < row.size()) return row[i];
    if (row.empty() || row.size() == 1) return 0;
    double p = row.back();  // the tail falls by 0.85 a rank
    for (std::size_t j = row.size(); j <= i; ++j) p *= 0.85;
    return p;
  }
  bool has_confidence() const { return alpha > 0 && beta > 0; }

  template <class V>
  void visit(V& v) {
    v.field(
        "hits", hits,
        "for each depth the probabilities that the 1st, 2nd … choice is right where the path before it is; the last "
        "depth stands for deeper ones, the last of several choices, times 0.85 each, for further ones",
        between(0, 1));
    v.field("alpha", alpha,
            "in place of `hits`: the drafter's confidence in its first choice is drawn from Beta(alpha, beta) anew at "
            "each node, and is right as often as it says",
            at_least(0));
    v.field("beta", beta, "see alpha", at_least(0));
    v.field("tail", tail, "with alpha: probabilities that the 2nd, 3rd … choice is right where the first is wrong",
            between(0, 1));
  }
};

/// What the program around a speculation takes on the host while the device waits: a scheduler that does not run ahead,
/// loops over sequences, trees that are built and walked. Beside the launches of ops, which plans have anyway. A round
/// takes passes · level + round + batch · sequence.
struct SpeculationHost {
  Seconds level{0}, round{0}, sequence{0};

  template <class V>
  void visit(V& v) {
    v.field("level", level, "before each pass of the drafter", at_least(Seconds{0}));
    v.field("round", round, "before each verification", at_least(Seconds{0}));
    v.field("sequence", sequence, "before each verification, for every sequence", at_least(Seconds{0}));
  }
};

/// Tokens that are drafted by something cheap and verified together; part of a generation.
struct SpeculateOptions {
  DraftMethod method = DraftMethod::Medusa;
  TreeKind tree = TreeKind::Auto;
  std::int64_t depth = 0, nodes = 0, width = 0;
  AcceptanceRule rule = AcceptanceRule::Rejection;
  double epsilon = 0.09, delta = 0.3;
  double top_p = 0.8, least_share = 0.25;
  DraftNetwork network;
  DraftAccuracy accuracy;
  SpeculationHost host;
  bool synthetic = false;
  std::string trace;

  template <class V>
  void visit(V& v) {
    v.field("method", method,
            "who drafts: a small model, blocks of the model itself (skip), heads on its last state (medusa; hydra: one "
            "after another), a block over its states (eagle, eagle3), a block that reads its last keys and values "
            "(glide), or a recurrent cell (clover)");
    v.field("tree", tree,
            "how drafts branch: not (chain), always the same way (static), by confidence (dynamic), the same but for "
            "paths that end early (beams), with alternatives beside a chain (caterpillar), or as far as a budget goes "
            "(budget); auto: as the method's authors have it");
    v.field("depth", depth, "most tokens drafted one after another; 0: the method's", between(0, 1024));
    v.field("nodes", nodes, "tokens of a tree; 0: the method's", between(0, 65535));
    v.field("width", width, "dynamic, beams: nodes that are expanded per level; 0: the method's", between(0, 65535));
    v.field("rule", rule,
            "with a temperature, which drafts are kept: those that leave the distribution as it is (rejection), or all "
            "that are likely enough (typical)");
    v.field("epsilon", epsilon, "typical: a token with more than this probability is kept", between(0, 1));
    v.field("delta", delta, "typical: and one with more than this times e^-entropy", at_least(0));
    v.field("top_p", top_p, "budget: choices of a node are taken up to this probability together", between(0, 1));
    v.field("least_share", least_share, "budget: choices below this part of the first one's probability are left out",
            between(0, 1));
    v.field("network", network, "the drafter's own network");
    v.field("accuracy", accuracy, "how often drafts are right, where no model says so; static trees are built from it");
    v.field("host", host, "times of the host that are no launches of ops, and that hide behind nothing");
    v.field("synthetic", synthetic, "runs draw from `accuracy` what is accepted: for timing without trained drafters");
    v.field(
        "trace", trace,
        "file of accepted drafts in place of `accuracy`: one line a round, one number per sequence; begins again at "
        "its end");
  }
};

}  // namespace orrery
