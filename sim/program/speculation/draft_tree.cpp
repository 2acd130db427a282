// SPDX-License-Identifier: Apache-2.0
#include "sim/program/speculation/draft_tree.hpp"

#include <algorithm>
#include <numeric>

namespace orrery {

std::int64_t alternatives(double p) { return p <= 0.3 ? 7 : p <= 0.6 ? 5 : p <= 0.8 ? 3 : 1; }

DraftTree::DraftTree(const SpeculationLayout& layout, const SpeculateOptions& options, std::int32_t root)
    : layout_{&layout}, options_{&options}, nodes_{DraftNode{.token = root, .shape = 0}}, frontier_{0} {}

std::int32_t DraftTree::add(std::int32_t parent, std::int32_t token, double probability, std::int32_t drawn_from) {
  const DraftNode& p = nodes_[static_cast<std::size_t>(parent)];
  nodes_.push_back({.parent = parent,
                    .token = token,
                    .depth = p.depth + 1,
                    .value = p.value * probability,
                    .draft_row = drawn_from});
  return static_cast<std::int32_t>(nodes_.size()) - 1;
}

void DraftTree::expand_shape(std::int32_t node, std::span<const std::int32_t> tokens,
                             std::span<const double> probabilities, std::int32_t drawn_from,
                             std::vector<std::int32_t>& next) {
  const auto& shape = layout_->shape.nodes;
  const std::int32_t at = nodes_[static_cast<std::size_t>(node)].shape;
  for (std::size_t s = 0; s < shape.size(); ++s) {
    if (shape[s].parent != at) continue;
    const auto rank = static_cast<std::size_t>(shape[s].rank);
    const std::int32_t child = add(node, tokens[rank], probabilities[rank], drawn_from);
    nodes_[static_cast<std::size_t>(child)].shape = static_cast<std::int32_t>(s);
    const bool has_children = std::any_of(shape.begin() + static_cast<std::ptrdiff_t>(s), shape.end(),
                                          [&](const auto& n) { return n.parent == static_cast<std::int32_t>(s); });
    if (has_children) next.push_back(child);
  }
}

/// All candidates of the level compete for what is left of the budget.
void DraftTree::expand_budget(std::int64_t k, std::span<const std::int32_t> tokens,
                              std::span<const double> probabilities, std::vector<std::int32_t>& next) {
  struct Candidate {
    double value;
    std::int32_t parent;
    std::size_t at;
  };
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < frontier_.size(); ++i) {
    double together = 0;
    for (std::size_t j = 0; j < static_cast<std::size_t>(k) && together < options_->top_p; ++j) {
      const std::size_t at = i * static_cast<std::size_t>(k) + j;
      if (probabilities[at] < options_->least_share * probabilities[i * static_cast<std::size_t>(k)]) break;
      together += probabilities[at];
      all.push_back({nodes_[static_cast<std::size_t>(frontier_[i])].value * probabilities[at], frontier_[i], at});
    }
  }
  const auto left = static_cast<std::size_t>(layout_->nodes) + 1 - nodes_.size();
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.value > b.value; });
  if (all.size() > left) all.resize(left);
  const bool goes_on = all.size() < left;
  // Children of a node in order of their rank: node order is that of the candidates.
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  for (const Candidate& c : all) {
    const std::int32_t child = add(c.parent, tokens[c.at], probabilities[c.at], -1);
    if (goes_on) next.push_back(child);
  }
}

void DraftTree::expand(std::int64_t k, std::span<const std::int32_t> tokens, std::span<const double> probabilities,
                       std::span<const std::int32_t> drawn_from) {
  std::vector<std::int32_t> next;
  const auto width = static_cast<std::size_t>(k);
  if (layout_->tree == TreeKind::Budget) {
    expand_budget(k, tokens, probabilities, next);
    frontier_ = std::move(next);
    return;
  }
  const bool by_confidence = layout_->tree == TreeKind::Dynamic || layout_->tree == TreeKind::Beams;
  for (std::size_t i = 0; i < frontier_.size(); ++i) {
    const auto mine = tokens.subspan(i * width, width);
    const auto p = probabilities.subspan(i * width, width);
    if (by_confidence) {
      for (std::size_t j = 0; j < width; ++j) next.push_back(add(frontier_[i], mine[j], p[j], -1));
    } else if (layout_->tree == TreeKind::Caterpillar) {
      next.push_back(add(frontier_[i], mine[0], p[0], -1));
      const auto more = static_cast<std::size_t>(std::min<std::int64_t>(k - 1, alternatives(p[0])));
      for (std::size_t j = 1; j <= more; ++j) add(frontier_[i], mine[j], p[j], -1);
    } else {
      expand_shape(frontier_[i], mine, p, drawn_from[i], next);
    }
  }
  if (by_confidence && next.size() > static_cast<std::size_t>(layout_->width)) {
    std::stable_sort(next.begin(), next.end(), [&](std::int32_t a, std::int32_t b) {
      return nodes_[static_cast<std::size_t>(a)].value > nodes_[static_cast<std::size_t>(b)].value;
    });
    next.resize(static_cast<std::size_t>(layout_->width));
  }
  frontier_ = std::move(next);
}

void DraftTree::finish() {
  if (layout_->tree == TreeKind::Beams) return keep(beams());
  const auto most = static_cast<std::size_t>(layout_->nodes) + 1;
  if (nodes_.size() <= most) return;
  std::vector<std::int32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return nodes_[static_cast<std::size_t>(a)].value > nodes_[static_cast<std::size_t>(b)].value;
  });
  order.resize(most);  // a path is never likelier than a part of it, and stands behind it: parents stay
  keep(std::move(order));
}

/// The nodes of the last level and all on their paths.
std::vector<std::int32_t> DraftTree::beams() const {
  std::vector<std::int32_t> kept{0};
  for (const std::int32_t end : frontier_)
    for (std::int32_t i = end; i > 0; i = nodes_[static_cast<std::size_t>(i)].parent)
      if (std::find(kept.begin(), kept.end(), i) == kept.end()) kept.push_back(i);
  return kept;
}

void DraftTree::keep(std::vector<std::int32_t> order) {
  std::sort(order.begin(), order.end());
  std::vector<std::int32_t> place(nodes_.size(), -1);
  std::vector<DraftNode> kept;
  for (const std::int32_t i : order) {
    place[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(kept.size());
    kept.push_back(nodes_[static_cast<std::size_t>(i)]);
    DraftNode& n = kept.back();
    if (n.parent >= 0) n.parent = place[static_cast<std::size_t>(n.parent)];
  }
  nodes_ = std::move(kept);
}

}  // namespace orrery
