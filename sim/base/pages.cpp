// SPDX-License-Identifier: Apache-2.0
#include "sim/base/pages.hpp"

#include <cstdlib>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace orrery {

void take_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = (page - reinterpret_cast<std::uintptr_t>(memory) % page) % page;
  if (bytes < before + page) return;
  // A system that does not know how gives them one by one.
  (void)madvise(static_cast<char*>(memory) + before, (bytes - before) / page * page, MADV_POPULATE_WRITE);
#endif
}

void want_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  (void)madvise(memory, bytes, MADV_HUGEPAGE);  // small pages do as well
#endif
}

void* take_large_pages(std::size_t bytes) {
  void* const memory = std::aligned_alloc(kLargePage, (bytes + kLargePage - 1) / kLargePage * kLargePage);
  if (memory == nullptr) throw std::bad_alloc{};
  want_large_pages(memory, bytes);
  return memory;
}

void PagesAhead::take(std::uintptr_t begin, std::uintptr_t end, std::uintptr_t last) {
  constexpr std::uintptr_t kStretch = 256 << 10, kAligned = 4 << 10;  // bytes
  const std::uintptr_t first = last == last_ ? std::max(begin, taken_) : begin;
  last_ = last;
  taken_ = std::min(std::max(end, (first + kStretch) / kAligned * kAligned), last);
  take_pages(reinterpret_cast<void*>(first), taken_ - first);
}

}  // namespace orrery
