// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/base/pages.hpp"

namespace orrery {

/// Of arrays that are walked here and there: those that fill a large page are on such, where the system has them, so
/// that elements far apart miss the TLB less often.
template <class T>
struct LargePageAllocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = LargePageAllocator<U>;
  };

  T* allocate(std::size_t count) {
    return is_large(count) ? static_cast<T*>(take_large_pages(count * sizeof(T))) : std::allocator<T>::allocate(count);
  }
  void deallocate(T* at, std::size_t count) {
    is_large(count) ? std::free(at) : std::allocator<T>::deallocate(at, count);
  }

 private:
  static bool is_large(std::size_t count) { return count >= kLargePage / sizeof(T); }
};

/// Leaves elements that are not given a value as the memory was.
template <class T>
struct UnsetAllocator : LargePageAllocator<T> {
  static_assert(std::is_trivially_copyable_v<T>);
  template <class U>
  struct rebind {
    using other = UnsetAllocator<U>;
  };

  void construct(T*) noexcept {}
  template <class... A>
  void construct(T* at, A&&... values) {
    std::construct_at(at, std::forward<A>(values)...);
  }
};

/// For millions of elements that are written later: `resize` does not touch them.
template <class T>
using UnsetVector = std::vector<T, UnsetAllocator<T>>;

}  // namespace orrery
