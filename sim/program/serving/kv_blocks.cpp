// SPDX-License-Identifier: Apache-2.0
#include "sim/program/serving/kv_blocks.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

std::int64_t ceil_div(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

}  // namespace

std::int64_t KvLayers::blocks(std::int64_t tokens, std::int64_t block) const {
  const std::int64_t all = ceil_div(tokens, block);
  return window > 0 ? std::min(all, ceil_div(window - 1, block) + 1) : all;
}

std::vector<KvLayers> kv_layers(const Model& model, std::int64_t ranks) {
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t) bug("keys and values of a model without attention");
  std::vector<KvLayers> all;
  for (const Block& block : t->decoder) {
    const Attention& a = block.attention;
    const std::int64_t window = a.window.value_or(0);
    auto same = std::find_if(all.begin(), all.end(), [&](const KvLayers& l) { return l.window == window; });
    if (same == all.end()) same = all.insert(all.end(), KvLayers{.numbers = 0, .window = window});
    if (const auto* l = std::get_if<LatentAttention>(&a.projections))
      same->numbers += l->kv_rank + l->rope_dim;
    else
      same->numbers += std::max<std::int64_t>(1, a.kv_heads / ranks) * (a.qk_dim + a.v_dim);
  }
  std::sort(all.begin(), all.end(), [](const KvLayers& a, const KvLayers& b) {
    return a.window == 0 || b.window == 0 ? a.window < b.window : a.window > b.window;
  });
  return all;
}

Bytes kv_bytes_per_token(const Model& model, DType type, std::int64_t ranks) {
  const std::vector<KvLayers> layers = kv_layers(model, ranks);
  return layers.empty() ? Bytes{0} : size_of(type, layers.front().numbers);
}

std::int64_t kv_numbers(std::span<const KvLayers> layers, std::int64_t tokens, std::int64_t block) {
  std::int64_t numbers = 0;
  for (const KvLayers& l : layers) numbers += l.numbers * l.blocks(tokens, block);
  return numbers;
}

KvBlocks::KvBlocks(const Sizes& sizes) : sizes_{sizes} {
  for (std::int64_t b = sizes.host; b-- > 0;) host_free_.push_back(static_cast<std::int32_t>(b));
}

std::int64_t KvBlocks::blocks_of_most(std::int64_t tokens) const {
  return sizes_.layers.empty() ? ceil_div(tokens, sizes_.tokens) : sizes_.layers.front().blocks(tokens, sizes_.tokens);
}

/// In blocks of the layers that keep most: Σ blocks of layers · numbers of layers, over the numbers of those.
std::int64_t KvBlocks::blocks_of_windows(std::int64_t tokens) const {
  if (sizes_.layers.size() < 2) return 0;
  return ceil_div(kv_numbers(std::span{sizes_.layers}.subspan(1), tokens, sizes_.tokens),
                  sizes_.layers.front().numbers);
}

KvBlocks::Found KvBlocks::find(std::span<const std::uint64_t> hashes) const {
  Found found;
  if (!sizes_.sharing) return found;
  for (const std::uint64_t hash : hashes) {
    const auto it = by_hash_.find(hash);
    if (it == by_hash_.end()) break;
    ++found.blocks;
    found.idle += blocks_[static_cast<std::size_t>(it->second)].holders == 0;
  }
  return found;
}

void KvBlocks::share(BlockTable& table, std::span<const std::uint64_t> hashes, std::int64_t count) {
  if (!table.blocks.empty()) bug("shared blocks behind others");
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t b = by_hash_.at(hashes[static_cast<std::size_t>(i)]);
    Block& block = blocks_[static_cast<std::size_t>(b)];
    if (block.holders++ == 0) idle_.erase(block.idle);
    table.blocks.push_back(b);
  }
  table.hashed = count;
}

/// A block without contents, one that was held before first; else the findable one that was not used for longest.
std::int32_t KvBlocks::take() {
  std::int32_t b = 0;
  if (!free_.empty()) {
    b = free_.back();
    free_.pop_back();
  } else if (untouched() > 0) {
    b = static_cast<std::int32_t>(blocks_.size());
    blocks_.emplace_back();
  } else {
    b = idle_.front();
    idle_.pop_front();
    by_hash_.erase(blocks_[static_cast<std::size_t>(b)].hash);
  }
  blocks_[static_cast<std::size_t>(b)].findable = false;
  blocks_[static_cast<std::size_t>(b)].holders = 1;
  return b;
}

bool KvBlocks::grow(BlockTable& table, std::int64_t tokens) {
  if (tokens <= table.room) return true;
  const auto missing = [](std::int64_t wanted, const std::vector<std::int32_t>& held) {
    return std::max<std::int64_t>(0, wanted - static_cast<std::int64_t>(held.size()));
  };
  const std::int64_t most = missing(blocks_of_most(tokens), table.blocks),
                     windows = missing(blocks_of_windows(tokens), table.windows);
  if (most + windows > available()) return false;
  for (std::int64_t i = 0; i < most; ++i) table.blocks.push_back(take());
  for (std::int64_t i = 0; i < windows; ++i) table.windows.push_back(take());
  table.room = ceil_div(tokens, sizes_.tokens) * sizes_.tokens;
  return true;
}

void KvBlocks::publish(BlockTable& table, std::span<const std::uint64_t> hashes) {
  if (!sizes_.sharing) return;
  for (auto i = static_cast<std::size_t>(table.hashed); i < hashes.size() && i < table.blocks.size(); ++i) {
    const std::int32_t b = table.blocks[i];
    if (by_hash_.emplace(hashes[i], b).second) {
      blocks_[static_cast<std::size_t>(b)].findable = true;
      blocks_[static_cast<std::size_t>(b)].hash = hashes[i];
    }
    table.hashed = static_cast<std::int64_t>(i) + 1;
  }
}

void KvBlocks::drop(std::int32_t b) {
  Block& block = blocks_[static_cast<std::size_t>(b)];
  if (--block.holders > 0) return;
  if (block.findable)
    block.idle = idle_.insert(idle_.end(), b);
  else
    free_.push_back(b);
}

/// The last blocks first, so that what is needed again last is given away first.
void KvBlocks::release(BlockTable& table) {
  for (const auto* blocks : {&table.windows, &table.blocks})
    for (auto b = blocks->rbegin(); b != blocks->rend(); ++b) {
      if (table.on_host)
        host_free_.push_back(*b);
      else
        drop(*b);
    }
  table = {};
}

std::vector<BlockCopy> KvBlocks::swap_out(BlockTable& table) {
  std::vector<BlockCopy> copies;
  if (table.on_host || table.held() > host_available()) return copies;
  for (auto* blocks : {&table.blocks, &table.windows})
    for (std::int32_t& b : *blocks) {
      copies.push_back({b, host_free_.back()});
      drop(b);
      b = host_free_.back();
      host_free_.pop_back();
    }
  table.on_host = true;
  table.hashed = 0;
  return copies;
}

std::vector<BlockCopy> KvBlocks::swap_in(BlockTable& table) {
  std::vector<BlockCopy> copies;
  if (!table.on_host || table.held() > available()) return copies;
  for (auto* blocks : {&table.blocks, &table.windows})
    for (std::int32_t& b : *blocks) {
      const std::int32_t to = take();
      copies.push_back({b, to});
      host_free_.push_back(b);
      b = to;
    }
  table.on_host = false;
  return copies;
}

std::uint64_t chain_hash(std::uint64_t before, std::uint64_t contents) {
  std::uint64_t h = before ^ (contents + 0x9e3779b97f4a7c15ull + (before << 6) + (before >> 2));
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
  return h ^ (h >> 31);
}

std::vector<std::uint64_t> block_hashes(std::span<const std::int32_t> tokens, std::int64_t block_tokens) {
  std::vector<std::uint64_t> hashes;
  std::uint64_t h = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    h = chain_hash(h, static_cast<std::uint32_t>(tokens[i]));
    if (static_cast<std::int64_t>(i + 1) % block_tokens == 0) hashes.push_back(h);
  }
  return hashes;
}

}  // namespace orrery
