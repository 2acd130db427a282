// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/speculation/token_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <queue>

#include "sim/base/option_error.hpp"

namespace orrery {

std::int64_t TreeShape::depth() const {
  std::int32_t most = 0;
  for (const Node& n : nodes) most = std::max(most, n.depth);
  return most;
}

std::int64_t TreeShape::width(std::int64_t depth) const {
  return std::count_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.depth == depth; });
}

std::int64_t TreeShape::expanded(std::int64_t depth) const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    count += nodes[i].depth == depth && std::any_of(nodes.begin(), nodes.end(), [&](const Node& n) {
               return n.parent == static_cast<std::int32_t>(i);
             });
  return count;
}

std::int64_t TreeShape::choices(std::int64_t depth) const {
  std::int32_t most = 0;
  for (const Node& n : nodes)
    if (n.depth == depth) most = std::max(most, n.rank + 1);
  return most;
}

TreeShape chain_shape(std::int64_t depth) {
  TreeShape s;
  for (std::int32_t d = 1; d <= depth; ++d) s.nodes.push_back({d - 1, 0, d});
  return s;
}

TreeShape best_first_shape(const DraftAccuracy& accuracy, std::int64_t nodes, std::int64_t depth, std::int64_t most) {
  struct Candidate {
    double value;
    std::int64_t order;
    TreeShape::Node node;
    bool operator<(const Candidate& o) const { return value != o.value ? value < o.value : order > o.order; }
  };
  TreeShape s;
  std::vector<double> values{1};
  std::priority_queue<Candidate> queue;
  std::int64_t order = 0;
  const auto offer = [&](std::int32_t parent, std::int32_t rank) {
    const std::int32_t d = s.nodes[static_cast<std::size_t>(parent)].depth + 1;
    if (d > depth || rank >= most) return;
    const double value = values[static_cast<std::size_t>(parent)] * accuracy.hit(d, rank);
    if (value > 0) queue.push({value, order++, {parent, rank, d}});
  };
  offer(0, 0);
  while (static_cast<std::int64_t>(s.nodes.size()) <= nodes && !queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    s.nodes.push_back(best.node);
    values.push_back(best.value);
    offer(static_cast<std::int32_t>(s.nodes.size()) - 1, 0);
    offer(best.node.parent, best.node.rank + 1);
  }
  return s;
}

TreeShape eagle_shape() {
  // Children of each node in order of the list: breadth first.
  constexpr std::int32_t kChildren[] = {4, 3, 2, 2, 1, 3, 2, 2, 1, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2};
  TreeShape s;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(std::size(kChildren)); ++i)
    for (std::int32_t rank = 0; rank < kChildren[i]; ++rank)
      s.nodes.push_back({i, rank, s.nodes[static_cast<std::size_t>(i)].depth + 1});
  return s;
}

double expected_tokens(const TreeShape& shape, const DraftAccuracy& accuracy) {
  std::vector<double> values;
  for (const TreeShape::Node& n : shape.nodes)
    values.push_back(n.parent < 0 ? 1.0 : values[static_cast<std::size_t>(n.parent)] * accuracy.hit(n.depth, n.rank));
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// Medusa repository (FasterDecoding/Medusa), assets/medusa_acc.csv, Vicuna 7B v1.3: probability that one of the first
/// k choices is right, here as differences.
DraftAccuracy medusa_accuracy() {
  DraftAccuracy a;
  a.hits = {{.560, .112, .055, .033, .020},
            {.316, .108, .061, .043, .034},
            {.201, .087, .060, .035, .034},
            {.147, .078, .049, .037, .029},
            {.118, .069, .048, .037, .028}};
  return a;
}

void set_usual_accuracy(SpeculateOptions& o) {
  if (o.method == DraftMethod::Medusa && o.accuracy.hits.empty() && !o.accuracy.has_confidence())
    o.accuracy = medusa_accuracy();
}

std::int64_t SpeculationLayout::slots(std::int64_t depth) const {
  return std::accumulate(frontier.begin(), frontier.begin() + static_cast<std::ptrdiff_t>(depth), std::int64_t{0});
}

namespace {

constexpr std::int64_t kMostChildren = 10;  // of a node of a static tree (Medusa)
constexpr std::int64_t kCaterpillar = 8;    // CaPE: a choice and up to 7 alternatives
constexpr std::int64_t kVerifiedStep = 8;   // rows by which verification passes of caterpillars and beams differ

struct Usual {
  TreeKind tree;
  std::int64_t depth, nodes, width;
};

/// What the authors of a method use.
Usual usual(const SpeculateOptions& o) {
  const bool dynamic = o.tree == TreeKind::Dynamic;
  switch (o.method) {
    case DraftMethod::Draft:
    case DraftMethod::Skip:
      return {TreeKind::Chain, 4, 16, 4};
    case DraftMethod::Medusa:
    case DraftMethod::Hydra:
      return {TreeKind::Static, 4, 63, 10};
    case DraftMethod::Eagle:
      return {TreeKind::Static, dynamic ? 6 : 5, dynamic ? 60 : 25, 10};
    case DraftMethod::Eagle3:
      return {TreeKind::Dynamic, 6, 60, 10};
    case DraftMethod::Glide:
      return {TreeKind::Caterpillar, 4, 16, 4};
    case DraftMethod::Clover:
      return {TreeKind::Budget, 3, 4, 4};
  }
  return {TreeKind::Chain, 4, 16, 4};
}

TreeShape static_shape(const SpeculateOptions& o, const SpeculationLayout& l) {
  const bool as_published = o.depth == 0 && o.nodes == 0 && o.accuracy.hits.empty();
  if (o.method == DraftMethod::Eagle && as_published) return eagle_shape();
  return best_first_shape(o.accuracy.hits.empty() ? medusa_accuracy() : o.accuracy, l.nodes, l.depth, kMostChildren);
}

void fill_levels(SpeculationLayout& l) {
  for (std::int64_t d = 1; d <= l.depth; ++d) {
    switch (l.tree) {
      case TreeKind::Dynamic:
      case TreeKind::Beams:
        l.choices.push_back(l.width);
        l.frontier.push_back(l.width);
        break;
      case TreeKind::Caterpillar:
        l.choices.push_back(kCaterpillar);
        l.frontier.push_back(1);
        break;
      case TreeKind::Budget:
        l.choices.push_back(l.nodes);
        l.frontier.push_back(std::max<std::int64_t>(1, l.nodes - d));
        break;
      default:
        l.choices.push_back(l.shape.choices(d));
        l.frontier.push_back(l.shape.expanded(d));
    }
  }
  l.frontier.pop_back();  // nobody expands the last level
}

void fill_verified(SpeculationLayout& l) {
  if (l.tree == TreeKind::Caterpillar || l.tree == TreeKind::Beams)
    for (std::int64_t n = kVerifiedStep; n < l.nodes; n += kVerifiedStep) l.verified.push_back(1 + n);
  l.verified.push_back(1 + l.nodes);
}

}  // namespace

SpeculationLayout layout_of(const SpeculateOptions& o, double temperature, std::int64_t vocabulary) {
  const Usual u = usual(o);
  SpeculationLayout l;
  l.tree = o.tree == TreeKind::Auto ? u.tree : o.tree;
  l.depth = o.depth > 0 ? o.depth : u.depth;
  l.nodes = o.nodes > 0 ? o.nodes : u.nodes;
  l.width = std::min(o.width > 0 ? o.width : u.width, vocabulary);
  if (l.tree == TreeKind::Chain) l.shape = chain_shape(l.depth), l.nodes = l.depth;
  if (l.tree == TreeKind::Static) {
    l.shape = static_shape(o, l);
    l.depth = l.shape.depth(), l.nodes = static_cast<std::int64_t>(l.shape.nodes.size()) - 1;
  }
  if (l.tree == TreeKind::Caterpillar) l.nodes = l.depth * std::min(kCaterpillar, vocabulary);
  if (l.tree == TreeKind::Beams) l.nodes = l.depth * l.width;
  if (l.depth < 1 || l.nodes < 1)
    throw OptionError{{"depth", "nodes"}, "a token tree without tokens", "depth and nodes are at least 1"};
  fill_levels(l);
  for (std::int64_t& k : l.choices)
    if (k > vocabulary) {
      if (l.tree == TreeKind::Static)
        throw OptionError{{"nodes"},
                          fmt::format("a tree of {} choices for a token of a vocabulary of {}", k, vocabulary),
                          "take fewer nodes, or more depth"};
      k = vocabulary;
    }
  fill_verified(l);
  const bool follows_chain = l.tree == TreeKind::Chain || l.tree == TreeKind::Caterpillar;
  const bool has_states =
      o.method == DraftMethod::Eagle || o.method == DraftMethod::Eagle3 || o.method == DraftMethod::Clover;
  l.start_rows = o.method == DraftMethod::Skip ? 1 : follows_chain && !has_states ? 2 : l.depth + 1;
  l.drawn = temperature > 0 && o.rule == AcceptanceRule::Rejection && !l.shape.nodes.empty() &&
            l.shape.nodes.size() > 1 && o.network.vocabulary == 0;
  return l;
}

}  // namespace orrery
