// SPDX-License-Identifier: Apache-2.0
#include "sim/model/bpe.hpp"

#include <queue>

namespace orrery {
namespace {

std::uint64_t key_of(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

constexpr std::size_t kEnd = ~std::size_t{0};

/// A symbol of the word in a linked list. A symbol that was merged into its left neighbour is not alive.
struct Symbol {
  TokenId id;
  std::size_t previous, next;
  bool alive = true;
};

/// Two neighbours that may merge, as they were when it was noticed.
struct Candidate {
  std::uint32_t rank;
  std::size_t position;
  TokenId left, right, result;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

void BpeMerges::add(TokenId left, TokenId right, TokenId result) {
  merges_.try_emplace(key_of(left, right), Merge{static_cast<std::uint32_t>(merges_.size()), result});
}

const BpeMerges::Merge* BpeMerges::find(TokenId left, TokenId right) const {
  const auto it = merges_.find(key_of(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void BpeMerges::apply(std::vector<TokenId>& symbols) const {
  const std::size_t n = symbols.size();
  if (n < 2) return;
  std::vector<Symbol> list(n);
  for (std::size_t i = 0; i < n; ++i) list[i] = {symbols[i], i == 0 ? kEnd : i - 1, i + 1 == n ? kEnd : i + 1};

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto consider = [&](std::size_t left) {
    if (left == kEnd || list[left].next == kEnd) return;
    const TokenId a = list[left].id, b = list[list[left].next].id;
    if (const Merge* m = find(a, b)) heap.push({m->rank, left, a, b, m->result});
  };
  for (std::size_t i = 0; i + 1 < n; ++i) consider(i);

  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    Symbol& left = list[c.position];
    const bool is_stale = !left.alive || left.id != c.left || left.next == kEnd || list[left.next].id != c.right;
    if (is_stale) continue;
    Symbol& right = list[left.next];
    left.id = c.result;
    left.next = right.next;
    right.alive = false;
    if (right.next != kEnd) list[right.next].previous = c.position;
    consider(left.previous);
    consider(c.position);
  }
  symbols.clear();
  for (std::size_t i = 0; i != kEnd; i = list[i].next) symbols.push_back(list[i].id);
}

}  // namespace orrery
