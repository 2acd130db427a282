// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/model/model.hpp"

namespace orrery {

/// Layers that keep keys and values of equally many tokens of a sequence.
struct KvLayers {
  std::int64_t numbers = 0;  // that one token takes in them, on one rank
  std::int64_t window = 0;   // tokens that a row sees, itself included; 0: all

  /// Blocks that stay of so many tokens. The window may begin anywhere in a block: ⌈(window − 1)/block⌉ + 1 at most.
  std::int64_t blocks(std::int64_t tokens, std::int64_t block) const;
};

/// The layers of a model by their windows, those that keep most first. One token takes on one of `ranks` that split
/// heads, summed over layers,
///   kv_heads/ranks · (dk + dv)      grouped-query attention; at least one head on each rank
///   kv_rank + rope_dim              latent attention: on every rank
std::vector<KvLayers> kv_layers(const Model& model, std::int64_t ranks);
/// Bytes of one token in the layers that keep most: what blocks are made of.
/// `type`: of the numbers in the pool (8 bits for fp8 and int8; scales of blocks are left out).
Bytes kv_bytes_per_token(const Model& model, DType type, std::int64_t ranks);
/// Numbers that these layers keep of a sequence of so many tokens, for one token of each of their blocks.
std::int64_t kv_numbers(std::span<const KvLayers> layers, std::int64_t tokens, std::int64_t block = 1);

/// What a sequence holds of the pool, on the device or, while it is swapped out, on the host: blocks of the layers that
/// keep most, in order, and those of layers with smaller windows.
struct BlockTable {
  std::vector<std::int32_t> blocks, windows;
  std::int64_t hashed = 0;  // leading blocks whose contents others may find
  std::int64_t room = 0;    // tokens that it was grown for, up to the end of their last block
  bool on_host = false;

  std::int64_t held() const { return static_cast<std::int64_t>(blocks.size() + windows.size()); }
};

/// A block that moves between device and host.
struct BlockCopy {
  std::int32_t from = 0, to = 0;
};

/// The blocks of a paged key-value pool: who holds which, which contents several sequences share, and which may be
/// given to somebody else. A full block is known by the hash of its tokens and of all before them; what nobody holds
/// any more stays findable until its block is needed, least recently used first. Constant time per block. The
/// simulator and the runtime use the same.
///
/// Layers with smaller windows than others take blocks of the same pool for as much as they keep, as in vLLM's hybrid
/// cache manager; they are not shared. Left out: what a step adds to a window until the next one gives back what fell
/// out of it.
class KvBlocks {
 public:
  struct Sizes {
    std::int64_t device = 0, host = 0;  // blocks
    std::int64_t tokens = 16;           // of a block
    bool sharing = true;
    std::vector<KvLayers> layers = {};  // those that keep most first; none: all keep all, as in plans
  };
  explicit KvBlocks(const Sizes& sizes);

  const Sizes& sizes() const { return sizes_; }
  /// Blocks that a sequence of so many tokens holds.
  std::int64_t blocks_for(std::int64_t tokens) const { return blocks_of_most(tokens) + blocks_of_windows(tokens); }
  /// Blocks that can be given out, those that only serve to be found included.
  std::int64_t available() const { return static_cast<std::int64_t>(free_.size() + idle_.size()) + untouched(); }
  std::int64_t held() const { return sizes_.device - available(); }
  std::int64_t host_available() const { return static_cast<std::int64_t>(host_free_.size()); }

  /// How many leading blocks with these hashes are there, and how many of these nobody holds at the moment.
  struct Found {
    std::int64_t blocks = 0, idle = 0;
  };
  Found find(std::span<const std::uint64_t> hashes) const;
  /// Takes the leading `count` blocks that `find` found into an empty table.
  void share(BlockTable& table, std::span<const std::uint64_t> hashes, std::int64_t count);
  /// Adds blocks until the table has room for so many tokens; false, and nothing changed, when there are too few.
  bool grow(BlockTable& table, std::int64_t tokens);
  /// From here on others may find the leading blocks of the table under these hashes.
  void publish(BlockTable& table, std::span<const std::uint64_t> hashes);
  void release(BlockTable& table);

  /// Moves a table to the host, and back; empty, and nothing changed, when there is no room. Shared blocks are copied,
  /// and come back as blocks of the sequence's own.
  std::vector<BlockCopy> swap_out(BlockTable& table);
  std::vector<BlockCopy> swap_in(BlockTable& table);

 private:
  struct Block {
    std::int32_t holders = 0;
    bool findable = false;
    std::uint64_t hash = 0;
    std::list<std::int32_t>::iterator idle;  // when nobody holds it
  };
  std::int64_t blocks_of_most(std::int64_t tokens) const;
  std::int64_t blocks_of_windows(std::int64_t tokens) const;
  std::int32_t take();
  void drop(std::int32_t block);

  /// Blocks that nobody has held yet: those behind `blocks_`.
  std::int64_t untouched() const { return sizes_.device - static_cast<std::int64_t>(blocks_.size()); }

  Sizes sizes_;
  std::vector<Block> blocks_;                   // that were held
  std::vector<std::int32_t> free_, host_free_;  // of those
  std::list<std::int32_t> idle_;                // findable, held by nobody, least recently used first
  std::unordered_map<std::uint64_t, std::int32_t> by_hash_;
};

/// The hash of a block, from that of the block before it and what it holds.
std::uint64_t chain_hash(std::uint64_t before, std::uint64_t contents);
/// The hashes of all full blocks of these tokens.
std::vector<std::uint64_t> block_hashes(std::span<const std::int32_t> tokens, std::int64_t block_tokens);

}  // namespace orrery
