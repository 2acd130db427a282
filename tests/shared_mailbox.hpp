// SPDX-License-Identifier: Apache-2.0
// Memory that a process and those that it has forked share: what one leaves under a key, the others find.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace orrery::testing {

class SharedMailbox {
 public:
  SharedMailbox() {
    void* place = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) throw std::runtime_error{"no shared memory"};
    start_ = new (place) Start;
  }
  ~SharedMailbox() { munmap(start_, kBytes); }
  SharedMailbox(const SharedMailbox&) = delete;
  SharedMailbox& operator=(const SharedMailbox&) = delete;

  void leave(std::string_view key, std::string_view text) {
    const std::uint64_t sizes[] = {key.size(), text.size()};
    while (start_->locked.test_and_set(std::memory_order_acquire)) continue;
    const std::uint64_t used = start_->used.load(), needed = sizeof sizes + key.size() + text.size();
    if (used + needed > kBytes - sizeof(Start)) throw std::runtime_error{"the shared mailbox is full"};
    char* at = letters() + used;
    std::memcpy(at, sizes, sizeof sizes);
    std::copy(text.begin(), text.end(), std::copy(key.begin(), key.end(), at + sizeof sizes));  // both may be empty
    start_->used.store(used + needed, std::memory_order_release);
    start_->locked.clear(std::memory_order_release);
  }
  std::optional<std::string> find(std::string_view key) const {
    const std::uint64_t used = start_->used.load(std::memory_order_acquire);
    for (std::uint64_t at = 0; at < used;) {
      std::uint64_t sizes[2];
      std::memcpy(sizes, letters() + at, sizeof sizes);
      const char* text = letters() + at + sizeof sizes;
      if (std::string_view{text, sizes[0]} == key) return std::string{text + sizes[0], sizes[1]};
      at += sizeof sizes + sizes[0] + sizes[1];
    }
    return std::nullopt;
  }

 private:
  struct Start {
    std::atomic<std::uint64_t> used{0};
    std::atomic_flag locked;
  };
  static constexpr std::size_t kBytes = std::size_t{1} << 28;
  char* letters() const { return reinterpret_cast<char*>(start_ + 1); }

  Start* start_ = nullptr;
};

}  // namespace orrery::testing
