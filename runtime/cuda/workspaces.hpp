// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/work.hpp"

namespace orrery {

/// What products may use between their steps (NVIDIA's advice for Hopper: 32 MiB).
constexpr std::int64_t kProductWorkspace = 32 << 20;

/// Bytes that the scratch of an op begins at a multiple of: cuBLASLt takes no other workspace on Hopper.
constexpr std::int64_t kScratchPlace = 256;

/// Bytes from the scale of one operand of a product in 8 bits to that of the other.
constexpr std::int64_t kScalePlace = 16;

/// Where the operands of a product in 8 bits lie in its scratch, in bytes: both cast, parts of a maximum, two scales,
/// and what the product itself uses.
struct EightBitScratch {
  std::int64_t row = 0;  // numbers from row to row of an operand
  std::int64_t a = 0, b = 0, parts = 0, scales = 0, product = 0, end = 0;
};
EightBitScratch eight_bit_scratch(const Gemm& g);

/// The operands of a product of groups, and where they lie in 8 bits in its scratch (in bytes): both cast, parts of a
/// maximum, two scales.
struct GroupedScratch {
  struct Operand {
    std::int64_t rows = 0, cols = 0;  // rows: that there is room for, over all groups
    std::int64_t row = 0, at = 0;     // numbers from row to row, and the place, when cast
  };
  Operand left, right;
  std::int64_t parts = 0, scales = 0, end = 0;
};
GroupedScratch grouped_scratch(const GroupedGemm& g);

/// Blocks that rank candidates of drafted tokens, each over two rows of doubles of its own.
constexpr std::int64_t kCandidateBlocks = 64;

/// Shares of the keys of attention with few queries: as many as give the device enough warps, of 128 keys at least.
/// Of the rows of a sequence that share keys, and of pages those of one row's heads.
std::int64_t key_splits(const AttentionShape& shape, std::int64_t keys);
std::int64_t key_splits(const PagedAttention& work);

}  // namespace orrery
