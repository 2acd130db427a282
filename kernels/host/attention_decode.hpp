// SPDX-License-Identifier: Apache-2.0
// Attention of few queries over a long cache: keys and values are read once, where they lie. For sources of this
// folder.
#pragma once

#include "kernels/host/attention_tile.hpp"

namespace orrery::kernels {

constexpr std::int64_t kDecodeQueries = 8;

std::size_t decode_workspace(const AttentionDims& dims, std::size_t element_size);

/// All query heads of kv head `kv` of one sequence with at most kDecodeQueries queries.
template <class T>
void decode_head(const AttentionArgs<T>& args, const Sequence& s, std::int64_t kv);

}  // namespace orrery::kernels
