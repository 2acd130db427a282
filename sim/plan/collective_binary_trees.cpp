// SPDX-License-Identifier: Apache-2.0
// All-reduce up and down binary trees, in pieces: while one is added, the one before is on its way to the parent.
#include "sim/plan/collective_algorithms.hpp"

namespace orrery {
namespace {

using enum StepBuffer;

/// A place of the in-order binary tree of 0 … n − 1: all odd ones are leaves, 0 is the root and has one child.
struct Place {
  std::int64_t parent = -1;
  std::int64_t child[2] = {-1, -1};
  int children = 0;

  bool is_leaf() const { return children == 0; }
  int which(std::int64_t c) const { return child[0] == c ? 0 : 1; }
};

/// With b the lowest bit of x, the children are x − b/2 and x + b/2, and the parent x ± b: the one whose bits below 2b
/// are 0, or x − b where that lies outside. A child that lies outside gives way to the next lower one on that side.
Place place_of(std::int64_t x, std::int64_t n) {
  Place p;
  std::int64_t bit = 1;
  while (bit < n && (x & bit) == 0) bit *= 2;
  if (x == 0) {
    p.child[p.children++] = bit / 2;
    return p;
  }
  p.parent = (x ^ bit) | (bit * 2);
  if (p.parent >= n) p.parent = x ^ bit;
  if (bit == 1) return p;
  p.child[p.children++] = x - bit / 2;
  std::int64_t half = bit / 2;
  while (half > 0 && x + half >= n) half /= 2;
  if (half > 0) p.child[p.children++] = x + half;
  return p;
}

/// One tree and the part of the message that goes over it. The second one is the mirror image of the first, or for odd
/// n the first moved by one: a leaf of one is inside of the other.
struct Tree {
  Tree(const StepMember& m, int trees) : n{m.n()}, lane{m.lane}, pieces{m.shape.pieces} {
    first = m.elements() * lane / trees, count = m.elements() * (lane + 1) / trees - first;
    x = lane == 0 ? m.i : n % 2 == 0 ? n - 1 - m.i : wrapped(m.i - 1, n);
    at = place_of(x, n);
  }
  std::int32_t member(std::int64_t y) const {
    return static_cast<std::int32_t>(lane == 0 ? y : n % 2 == 0 ? n - 1 - y : wrapped(y + 1, n));
  }
  StepSlot piece(StepBuffer b, std::int64_t k) const {
    const std::int64_t from = first + count * k / pieces;
    return {b, from, first + count * (k + 1) / pieces - from};
  }

  // Up: piece k of child j in step k·children + j; piece k − 1 goes on with the first child's piece k.
  std::int64_t up_size(const Place& p) const {
    if (p.is_leaf()) return pieces;
    return pieces * p.children + (p.parent >= 0 ? 1 : 0);
  }
  std::int64_t up_sent(const Place& p, std::int64_t k) const { return p.is_leaf() ? k : (k + 1) * p.children; }
  CollectiveStep up(std::int64_t u) const {
    CollectiveStep s;
    const std::int64_t k = at.is_leaf() ? u : u / at.children, j = at.is_leaf() ? 0 : u % at.children;
    const std::int64_t sent = at.is_leaf() ? k : k - 1;
    if (j == 0 && sent >= 0 && at.parent >= 0) {
      const Place parent = place_of(at.parent, n);
      s.to = member(at.parent), s.to_step = step_number(sent * parent.children + parent.which(x));
      s.source = piece(at.is_leaf() ? In : Out, sent);
    }
    if (!at.is_leaf() && k < pieces) {
      const Place child = place_of(at.child[j], n);
      s.from = member(at.child[j]), s.from_step = s.since = step_number(up_sent(child, k));
      s.theirs = piece(child.is_leaf() ? In : Out, k);
      s.own = piece(j == 0 ? In : Out, k), s.target = piece(Out, k);
      s.reduces = true;
    }
    return s;
  }

  // Down: piece k comes in step k·children, while piece k − 1 goes to the last child; then piece k goes to the first.
  std::int64_t down_size(const Place& p) const {
    if (p.is_leaf()) return pieces;
    return pieces * p.children + (p.parent >= 0 ? 1 : 0);
  }
  std::int64_t down_got(const Place& p, std::int64_t k) const {
    return up_size(p) + (p.is_leaf() ? k : k * p.children);
  }
  std::int64_t down_sent(const Place& p, std::int64_t k, int j) const {
    if (p.parent < 0) return up_size(p) + k * p.children + j;
    return up_size(p) + (j == p.children - 1 ? (k + 1) * p.children : k * p.children + 1);
  }
  CollectiveStep down(std::int64_t d) const {
    const std::int64_t k = at.is_leaf() ? d : d / at.children;
    const int j = at.is_leaf() ? 0 : static_cast<int>(d % at.children);
    CollectiveStep s;
    if (at.parent < 0)
      send_down(s, k, j);
    else if (j == 1)
      send_down(s, k, 0);
    else if (!at.is_leaf() && k > 0)
      send_down(s, k - 1, at.children - 1);
    if (at.parent >= 0 && j == 0 && k < pieces) {
      const Place parent = place_of(at.parent, n);
      s.from = member(at.parent), s.from_step = s.since = step_number(down_sent(parent, k, parent.which(x)));
      s.theirs = s.target = piece(Out, k);
    }
    return s;
  }
  void send_down(CollectiveStep& s, std::int64_t k, int j) const {
    s.to = member(at.child[j]), s.to_step = step_number(down_got(place_of(at.child[j], n), k));
    s.source = piece(Out, k);
  }

  std::int64_t size() const { return up_size(at) + down_size(at); }
  CollectiveStep step(std::int64_t k) const { return k < up_size(at) ? up(k) : down(k - up_size(at)); }

  std::int64_t n;
  int lane;
  std::int64_t pieces, first = 0, count = 0, x = 0;
  Place at;
};

template <int trees>
std::int64_t tree_size(const StepMember& m) {
  return Tree{m, trees}.size();
}
template <int trees>
CollectiveStep tree_step(const StepMember& m, std::int64_t k) {
  return Tree{m, trees}.step(k);
}
std::int64_t no_stage(const CollectiveShape&) { return 0; }

constexpr StepAlgorithm kAlgorithms[] = {
    {CollectiveKind::AllReduce, CollectiveAlgorithm::Tree, tree_size<1>, tree_step<1>, no_stage},
    {CollectiveKind::AllReduce, CollectiveAlgorithm::DoubleTree, tree_size<2>, tree_step<2>, no_stage}};

}  // namespace

std::span<const StepAlgorithm> binary_tree_algorithms() { return kAlgorithms; }

}  // namespace orrery
