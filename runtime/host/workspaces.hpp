// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/work.hpp"

namespace orrery {

/// Keys per sequence that scratch is planned for: as many as there are, or for a length that is bound at run time the
/// constant part and 8192 more. Forward attention of few queries reads its cache in place: its scratch does not depend
/// on the keys.
std::int64_t planned_keys(const AttentionShape& shape);
constexpr std::int64_t kFewQueries = 8;

/// Where the cast operands of a product in 8 bits begin in its scratch: behind that of the product.
std::size_t narrow_offset(const Gemm& work, std::size_t element_size);
std::size_t narrow_offset(const GroupedGemm& work, std::size_t element_size);

/// Scratch of the attention kernel, without the log-sum-exps that an op that does not keep them needs behind it.
std::size_t attention_scratch(const AttentionShape& shape, std::size_t element_size);
std::size_t attention_scratch(const PagedAttention& work, std::size_t element_size);

}  // namespace orrery
