// SPDX-License-Identifier: Apache-2.0
#include "runtime/strided.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace orrery {

StridedDims::StridedDims(const Layout& layout) {
  for (int i = 0; i < layout.shape.rank; ++i) {
    const std::int64_t size = layout.shape[i], stride = layout.strides[static_cast<std::size_t>(i)];
    if (size == 1) continue;
    const auto last = static_cast<std::size_t>(rank_ - 1);
    if (rank_ > 0 && strides_[last] == size * stride) {
      sizes_[last] *= size;
      strides_[last] = stride;
    } else {
      sizes_[static_cast<std::size_t>(rank_)] = size;
      strides_[static_cast<std::size_t>(rank_)] = stride;
      ++rank_;
    }
  }
}

std::optional<std::int64_t> StridedDims::take(std::int64_t n) {
  if (n == 1) return 1;
  if (rank_ == 0) return std::nullopt;
  const auto last = static_cast<std::size_t>(rank_ - 1);
  const std::int64_t stride = strides_[last];
  if (sizes_[last] == n) {
    --rank_;
    return stride;
  }
  if (n <= 0 || sizes_[last] < n || sizes_[last] % n != 0) return std::nullopt;
  sizes_[last] /= n;
  strides_[last] = stride * n;
  return stride;
}

std::int64_t StridedDims::elements() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= sizes_[static_cast<std::size_t>(i)];
  return n;
}

std::int64_t StridedDims::run() const {
  if (rank_ == 0) return 1;
  const auto last = static_cast<std::size_t>(rank_ - 1);
  return strides_[last] == 1 ? sizes_[last] : 1;
}

std::int64_t StridedDims::offset(std::int64_t i) const {
  std::int64_t at = 0;
  for (auto d = static_cast<std::size_t>(rank_); d-- > 0;) {
    at += i % sizes_[d] * strides_[d];
    i /= sizes_[d];
  }
  return at;
}

namespace {

/// Visits the elements of dimensions in row-major order, `step` of the innermost at a time.
class Walk {
 public:
  Walk(const StridedDims& dims, std::int64_t step) : dims_{dims}, step_{step} {}
  std::int64_t offset() const { return offset_; }
  void next() {
    std::int64_t step = step_;
    for (auto d = static_cast<std::size_t>(dims_.rank()); d-- > 0; step = 1) {
      offset_ += step * dims_.stride(d);
      at_[d] += step;
      if (at_[d] < dims_.size(d)) return;
      offset_ -= at_[d] * dims_.stride(d);
      at_[d] = 0;
    }
  }

 private:
  const StridedDims& dims_;
  std::int64_t step_, offset_ = 0;
  std::array<std::int64_t, 5> at_{};
};

}  // namespace

void copy_elements(const Layout& from_layout, const std::byte* from, const Layout& to_layout, std::byte* to,
                   std::int64_t element_bytes) {
  const StridedDims source{from_layout}, target{to_layout};
  const std::int64_t elements = std::min(source.elements(), target.elements());
  const std::int64_t run = std::gcd(std::gcd(source.run(), target.run()), elements);
  Walk read{source, run}, write{target, run};
  for (std::int64_t i = 0; i < elements; i += run, read.next(), write.next())
    std::memmove(to + write.offset() * element_bytes, from + read.offset() * element_bytes,
                 static_cast<std::size_t>(run * element_bytes));
}

}  // namespace orrery
