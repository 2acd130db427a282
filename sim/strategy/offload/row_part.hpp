// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/plan/work.hpp"

namespace orrery {

/// A work whose rows are computed one by one.
struct RowWise {
  std::int64_t rows = 0;
  std::vector<bool> split;  // per operand: whether it has these rows, or serves all of them
  std::int64_t unit = 1;    // rows can be parted at multiples of it
};

/// Nothing for works that mix rows. `num_operands` of the op.
std::optional<RowWise> row_wise(const Work& work, std::size_t num_operands);

/// The same work for `count` rows from `first` on, both multiples of the unit.
Work rows_of(Work work, std::int64_t first, std::int64_t count);

}  // namespace orrery
