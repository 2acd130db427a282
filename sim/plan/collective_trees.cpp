// SPDX-License-Identifier: Apache-2.0
// Broadcast and reduce on binomial trees. Positions count from the root: p gets from, and adds to, p without its
// highest bit.
#include "sim/plan/collective_algorithms.hpp"

namespace orrery {
namespace {

using enum StepBuffer;

struct Node {
  Node(const StepMember& member, std::int64_t p) : m{member}, position{p} {}
  explicit Node(const StepMember& member) : Node{member, wrapped(member.i - member.shape.root, member.n())} {}

  /// The round in which it meets its parent; −1 for the root.
  std::int64_t own_round() const { return std::bit_width(static_cast<std::uint64_t>(position)) - 1; }
  std::int64_t first_round() const { return own_round() + 1; }
  Node parent() const { return {m, position - (std::int64_t{1} << own_round())}; }
  Node child(std::int64_t round) const { return {m, position + (std::int64_t{1} << round)}; }
  std::int64_t children() const {
    std::int64_t q = first_round();
    while (position + (std::int64_t{1} << q) < m.n()) ++q;
    return q - first_round();
  }
  std::int32_t member() const { return static_cast<std::int32_t>(wrapped(position + m.shape.root, m.n())); }

  const StepMember& m;
  std::int64_t position;
};

/// Steps before it sends to its first child: its own copy, or its message.
std::int64_t before_children(const Node& node) { return node.position == 0 ? node.m.copies() : 1; }

std::int64_t broadcast_size(const StepMember& m) { return before_children(Node{m}) + Node{m}.children(); }
CollectiveStep broadcast_step(const StepMember& m, std::int64_t k) {
  const Node node{m};
  CollectiveStep s;
  if (k < before_children(node)) {
    if (node.position == 0) return copy_step(m.whole(In), m.whole(Out));
    const Node parent = node.parent();
    s.from = parent.member();
    s.from_step = s.since = step_number(before_children(parent) + node.own_round() - parent.first_round());
    s.theirs = s.target = m.whole(Out);
    return s;
  }
  s.to = node.child(node.first_round() + k - before_children(node)).member();
  s.source = m.whole(Out);
  return s;
}

std::int64_t reduce_size(const StepMember& m) {
  const Node node{m};
  return node.children() + (node.position == 0 ? 0 : 1);
}

/// The broadcast backwards: the child that comes last there comes first here. Sums lie in the stage; the root's in its
/// output.
CollectiveStep reduce_step(const StepMember& m, std::int64_t k) {
  const Node node{m};
  const std::int64_t children = node.children();
  CollectiveStep s;
  if (k == children) {
    const Node parent = node.parent();
    s.to = parent.member();
    s.to_step = step_number(parent.first_round() + parent.children() - 1 - node.own_round());
    s.source = m.whole(children == 0 ? In : Stage);
    return s;
  }
  const Node child = node.child(node.first_round() + children - 1 - k);
  const StepBuffer sum = node.position == 0 ? Out : Stage;
  s.from = child.member(), s.from_step = s.since = step_number(child.children());
  s.theirs = m.whole(child.children() == 0 ? In : Stage);
  s.own = m.whole(k == 0 ? In : sum), s.target = m.whole(sum);
  s.reduces = true;
  return s;
}

std::int64_t no_stage(const CollectiveShape&) { return 0; }
std::int64_t whole_stage(const CollectiveShape& s) { return s.elements; }

constexpr StepAlgorithm kAlgorithms[] = {
    {CollectiveKind::Broadcast, CollectiveAlgorithm::Tree, broadcast_size, broadcast_step, no_stage},
    {CollectiveKind::Reduce, CollectiveAlgorithm::Tree, reduce_size, reduce_step, whole_stage}};

}  // namespace

std::span<const StepAlgorithm> tree_algorithms() { return kAlgorithms; }

}  // namespace orrery
