// SPDX-License-Identifier: Apache-2.0
// Conventions of all host kernels. T is float or double. Tensors are row-major and contiguous unless strides are given
// (in elements). Sizes are int64, index tensors int32. A pointer that may be null says so. Kernels never allocate: what
// they need is in `workspace`, 64-byte aligned, of the size that `<kernel>_workspace` returns. Sums have a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace orrery::kernels {

/// Whether a result replaces what the output holds or is added to it.
enum class Write : bool { Overwrite, Accumulate };

/// n, at least 0, up to the next multiple of `unit`.
constexpr std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

/// The first key that a window over keys leaves to a query at position p: windows slide, or lie side by side.
constexpr std::int64_t window_start(std::int64_t p, std::int64_t window, bool chunked) {
  return chunked ? p / window * window : p - window + 1;
}

/// Distance in elements from one row to the next; absent means the rows are contiguous.
using RowStride = std::optional<std::int64_t>;

}  // namespace orrery::kernels
