// SPDX-License-Identifier: Apache-2.0
#include "runtime/awaited.hpp"

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <limits>
#include <thread>

#include "runtime/clock.hpp"

namespace orrery {
namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

constexpr int kLooks = 12, kYields = 4;     // before a thread sleeps
constexpr std::int64_t kSlice = 1'000'000;  // ns; no rank of a plan of many small ops keeps a core for as long
constexpr std::int32_t kAtOnce = 500;       // waits

// Waits of all threads that are to sleep at once.
std::atomic<std::int32_t> at_once{0};

void futex(const std::atomic<std::uint32_t>& number, int operation, std::uint32_t value) noexcept {
  syscall(SYS_futex, &number, operation | FUTEX_PRIVATE_FLAG, value, nullptr);
}

}  // namespace

bool Awaited::has_changed_soon(std::uint32_t value) const noexcept {
  for (int i = 0; i < kLooks; ++i) {
    if (load(std::memory_order_acquire) != value) return true;
    _mm_pause();
  }
  if (at_once.load(std::memory_order_relaxed) > 0) {
    at_once.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  for (int i = 0; i < kYields; ++i) {
    if (load(std::memory_order_acquire) != value) return true;
    const std::int64_t before = now_ns();
    std::this_thread::yield();
    if (now_ns() - before > kSlice) {
      at_once.store(kAtOnce, std::memory_order_relaxed);
      return false;
    }
  }
  return false;
}

void Awaited::wait(std::uint32_t value) const noexcept {
  if (has_changed_soon(value)) return;
  // Said before the kernel compares, as the number is changed before `asleep_` is looked at: one of both is seen.
  asleep_.fetch_add(1);
  while (load() == value) futex(*this, FUTEX_WAIT, value);
  asleep_.fetch_sub(1);
}

void Awaited::notify_all() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asleep_.load() > 0) futex(*this, FUTEX_WAKE, std::numeric_limits<int>::max());
}

}  // namespace orrery
