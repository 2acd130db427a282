// SPDX-License-Identifier: Apache-2.0
#include "sim/base/pages.hpp"

#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace orrery {

void take_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  constexpr std::size_t kFewest = 1 << 20;
  if (bytes < kFewest) return;
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = (page - reinterpret_cast<std::uintptr_t>(memory) % page) % page;
  // A system that does not know how gives them one by one.
  (void)madvise(static_cast<char*>(memory) + before, (bytes - before) / page * page, MADV_POPULATE_WRITE);
#endif
}

}  // namespace orrery
