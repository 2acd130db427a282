// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace orrery {

/// Leaves elements that are not given a value as the memory was.
template <class T>
struct UnsetAllocator : std::allocator<T> {
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
