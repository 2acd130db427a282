// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace orrery {

/// Has the system give the pages of memory that is about to be written all at once, where it can: one by one, as each
/// is written first, they take it a quarter longer. Contents stay as they are.
void take_pages(void* memory, std::size_t bytes);

/// Bytes of a large page.
constexpr std::size_t kLargePage = 2 << 20;
/// Has the system put memory that begins with a large page on such, as far as it fills them, where it has any.
void want_large_pages(void* memory, std::size_t bytes);
/// Such memory, given back by free(); throws std::bad_alloc.
void* take_large_pages(std::size_t bytes);

/// Takes pages of what a vector has reserved as it grows into them, so many at a time that they are still in a cache
/// when they are written.
class PagesAhead {
 public:
  /// The vector is about to grow by some elements.
  template <class Vector>
  void grow(Vector& v, std::size_t more) {
    if (more > v.capacity() - v.size()) return;  // it moves elsewhere
    const auto end = reinterpret_cast<std::uintptr_t>(v.data() + v.size() + more);
    const auto last = reinterpret_cast<std::uintptr_t>(v.data() + v.capacity());
    if (last == last_ && end <= taken_) return;
    take(reinterpret_cast<std::uintptr_t>(v.data() + v.size()), end, last);
  }

 private:
  void take(std::uintptr_t begin, std::uintptr_t end, std::uintptr_t last);

  std::uintptr_t taken_ = 0, last_ = 0;  // up to where, of room up to where
};

}  // namespace orrery
