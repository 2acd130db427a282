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

/// The same work for the rows from `first` on, a multiple of the unit.
Work last_rows(Work work, std::int64_t first);

}  // namespace orrery
