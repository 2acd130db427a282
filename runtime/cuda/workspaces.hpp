// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/work.hpp"

namespace orrery {

/// What products may use between their steps (NVIDIA's advice for Hopper: 32 MiB).
constexpr std::int64_t kProductWorkspace = 32 << 20;

/// Blocks that rank candidates of drafted tokens, each over two rows of doubles of its own.
constexpr std::int64_t kCandidateBlocks = 64;

/// Shares of the keys of attention with few queries: as many as give each of `kWarps` warps one, of 128 keys at least.
std::int64_t key_splits(const AttentionShape& shape, std::int64_t keys);

}  // namespace orrery
