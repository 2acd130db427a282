// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "sim/plan/tensor.hpp"

namespace orrery {

/// The dimensions of a layout without those of size one, evenly spaced neighbours joined: the fewest that address the
/// same elements in the same order. Innermost last.
class StridedDims {
 public:
  explicit StridedDims(const Layout& layout);

  /// Splits the innermost `n` elements off and returns their distance; nothing when they are not evenly spaced. One
  /// element counts as dense.
  std::optional<std::int64_t> take(std::int64_t n);
  /// Elements that are left.
  std::int64_t elements() const;
  /// Elements at the end that lie one after another.
  std::int64_t run() const;
  int rank() const { return rank_; }
  std::int64_t size(std::size_t dim) const { return sizes_[dim]; }
  std::int64_t stride(std::size_t dim) const { return strides_[dim]; }
  /// Where element `i` (in row-major order) lies.
  std::int64_t offset(std::int64_t i) const;

 private:
  int rank_ = 0;
  std::array<std::int64_t, 5> sizes_{}, strides_{};
};

/// Copies the elements of one layout to those of another, in row-major order of both. Offsets of the layouts are not
/// added.
void copy_elements(const Layout& from_layout, const std::byte* from, const Layout& to_layout, std::byte* to,
                   std::int64_t element_bytes);

}  // namespace orrery
