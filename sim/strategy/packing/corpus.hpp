// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/base/random.hpp"
#include "sim/strategy/packing/packing.hpp"

namespace orrery {

/// What the shares of a histogram of lengths are shares of: the figure does not say.
enum class ShareOf : std::uint8_t { Tokens, Documents };
inline std::span<const EnumName<ShareOf>> enum_names(ShareOf) {
  static constexpr EnumName<ShareOf> names[] = {{ShareOf::Tokens, "tokens"}, {ShareOf::Documents, "documents"}};
  return names;
}

/// The length of a document, drawn from the corpus that DataSculpt was trained on (arXiv 2409.00997, figures of its
/// repository: shares of eight domains, and of six ranges of lengths in each). Shares of domains are of tokens. Within
/// a range lengths are log-uniform, the shortest 200 tokens and the longest 200,000, and 4k is 4,096: that is not
/// published.
std::int64_t datasculpt_length(ShareOf shares, Random& random);
/// The mean of all.
double datasculpt_mean(ShareOf shares);
/// Lengths of documents that come to `tokens` tokens or just more.
std::vector<std::int64_t> datasculpt_lengths(ShareOf shares, std::int64_t tokens, Random& random);
/// What a packer makes of so many corpora, each of so many tokens and drawn from a seed of its own: 1, 2, … Shares and
/// spreads are means, counts are of all of them.
PackingStatistics datasculpt_packing(ShareOf shares, const PackRequest& request, std::int64_t tokens, int corpora);

}  // namespace orrery
