// SPDX-License-Identifier: Apache-2.0
// Replaces the allocation functions of the C library by ones that count. A sanitizer has its own: then nothing is
// counted.
#include "tests/kernels_testing.hpp"

#include <atomic>
#include <cerrno>

namespace {
std::atomic<std::int64_t> calls{0};
}

namespace orrery::kernels::testing {
std::int64_t allocations() { return calls; }
}  // namespace orrery::kernels::testing

#ifndef ORRERY_SANITIZED
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  ++calls;
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  ++calls;
  return __libc_calloc(count, bytes);
}

void* realloc(void* p, std::size_t bytes) {
  ++calls;
  return __libc_realloc(p, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  ++calls;
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** p, std::size_t alignment, std::size_t bytes) {
  *p = memalign(alignment, bytes);
  return *p ? 0 : ENOMEM;
}
}
#endif
