// SPDX-License-Identifier: Apache-2.0
// Attention of few queries over a long cache: keys and values are read once, where they lie. For sources of this
// folder.
#pragma once

#include "kernels/host/attention_tile.hpp"

namespace orrery::kernels {

constexpr std::int64_t kDecodeQueries = 8;

std::size_t decode_workspace(const AttentionDims& dims, std::size_t element_size);

/// All heads of the sequences with at most kDecodeQueries queries.
template <class T>
void attend_few(const AttentionArgs<T>& args);

}  // namespace orrery::kernels
