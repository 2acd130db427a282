// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace orrery {

/// Has the system give the pages of memory that is about to be written all at once, where it can and there are
/// megabytes of it: one by one, as each is written first, they take it a quarter longer. Contents stay as they are.
void take_pages(void* memory, std::size_t bytes);

/// What a vector has reserved and does not use yet.
template <class Vector>
void take_reserved_pages(Vector& v) {
  take_pages(static_cast<void*>(v.data() + v.size()), (v.capacity() - v.size()) * sizeof(*v.data()));
}

}  // namespace orrery
