// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace orrery {

using TokenId = std::int32_t;

/// The merges of a byte-pair encoding: which neighbours become one token, the earliest listed first.
class BpeMerges {
 public:
  void reserve(std::size_t merges) { merges_.reserve(merges); }
  /// Adds the next merge. Of two merges of the same pair the first counts.
  void add(TokenId left, TokenId right, TokenId result);
  std::size_t size() const { return merges_.size(); }

  /// Merges neighbours until no merge applies: always the one of lowest rank, the leftmost of equals. For n symbols
  /// O(n log n): a heap of candidate pairs over a linked list.
  void apply(std::vector<TokenId>& symbols) const;

 private:
  struct Merge {
    std::uint32_t rank;
    TokenId result;
  };
  const Merge* find(TokenId left, TokenId right) const;

  std::unordered_map<std::uint64_t, Merge> merges_;
};

}  // namespace orrery
