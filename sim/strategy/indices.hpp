// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace orrery {

// Index tables and masks that follow from shapes alone.

/// Buckets of T5's relative positions, [queries, keys] row-major: query i stands at position first + i. Half of the
/// buckets (of each sign when bidirectional) count distances exactly, the others grow logarithmically up to
/// max_distance.
std::vector<double> t5_buckets(std::int64_t first, std::int64_t queries, std::int64_t keys, std::int64_t buckets,
                               std::int64_t max_distance, bool bidirectional);

/// Relative offset (Δy + w − 1)·(2w − 1) + Δx + w − 1 of each pair of positions of a w×w window, [w², w²].
std::vector<double> swin_offsets(std::int64_t window);

/// For row r of the windowed order (sample, window, position in it): which row of the plain order it takes, after a
/// cyclic shift.
std::vector<double> swin_partition(std::int64_t batch, std::int64_t side, std::int64_t window, std::int64_t shift);
/// The inverse permutation.
std::vector<double> swin_restore(std::int64_t batch, std::int64_t side, std::int64_t window, std::int64_t shift);

/// Additive mask [windows, w², w²] of shifted windows: −100 between positions that were not neighbours before the
/// shift, else 0.
std::vector<double> swin_mask(std::int64_t side, std::int64_t window, std::int64_t shift);

/// Rows of patch merging: for each 2×2 cell of a side×side grid the rows (0,0), (1,0), (0,1), (1,1).
std::vector<double> merge_rows(std::int64_t batch, std::int64_t side);

/// first, first + step, … count numbers, repeated `times` times.
std::vector<double> repeated_range(std::int64_t first, std::int64_t step, std::int64_t count, std::int64_t times);

}  // namespace orrery
