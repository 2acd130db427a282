// SPDX-License-Identifier: Apache-2.0
#include "runtime/workers.hpp"

namespace orrery {

Workers::~Workers() {
  {
    const std::lock_guard lock{mutex_};
    stops_ = true;
  }
  start_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void Workers::reserve(std::size_t count) {
  while (threads_.size() < count) threads_.emplace_back([this, index = threads_.size()] { serve(index); });
}

void Workers::run(Jobs& jobs, std::size_t count) {
  std::unique_lock lock{mutex_};
  jobs_ = &jobs;
  count_ = left_ = count;
  ++generation_;
  start_.notify_all();
  done_.wait(lock, [this] { return left_ == 0; });
  jobs_ = nullptr;
}

void Workers::serve(std::size_t index) {
  std::uint64_t seen = 0;
  std::unique_lock lock{mutex_};
  for (;;) {
    start_.wait(lock, [&] { return stops_ || (generation_ != seen && index < count_ && jobs_ != nullptr); });
    if (stops_) return;
    seen = generation_;
    Jobs& jobs = *jobs_;
    lock.unlock();
    jobs.run(index);
    lock.lock();
    if (--left_ == 0) done_.notify_all();
  }
}

}  // namespace orrery
