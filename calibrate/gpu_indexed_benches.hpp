// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/gpu_benches.hpp"

namespace orrery {

/// Kernels whose work depends on what indices say (rows of embeddings and experts, pages of caches, token trees,
/// products of groups), which therefore have contents; and the gradients of norms and losses, and the choice of tokens.
/// One of each for every number of rows.
struct IndexedSizes {
  std::vector<std::int64_t> rows;
  std::int64_t cols = 4096, vocabulary = 50'304;
  std::int64_t keys = 1024;  // of a sequence that decodes
};
std::vector<GpuBench> gpu_indexed_benches(DType dtype, const IndexedSizes& sizes, Random& random);

}  // namespace orrery
