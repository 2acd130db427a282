// SPDX-License-Identifier: Apache-2.0
#include "runtime/workers.hpp"

namespace orrery {

Workers::~Workers() {
  for (auto& w : workers_) call(*w, nullptr);
  for (auto& w : workers_) w->thread.join();
}

void Workers::reserve(std::size_t count) {
  while (workers_.size() < count) {
    Worker& w = *workers_.emplace_back(std::make_unique<Worker>());
    w.thread = std::thread{[this, &w, index = workers_.size() - 1] { serve(w, index); }};
  }
}

void Workers::call(Worker& worker, Jobs* jobs) {
  worker.jobs = jobs;
  worker.calls.fetch_add(1, std::memory_order_release);
  worker.calls.notify_all();
}

void Workers::run(Jobs& jobs, std::size_t count) {
  left_.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) call(*workers_[i], &jobs);
  for (std::uint32_t left = left_.load(std::memory_order_acquire); left > 0;
       left = left_.load(std::memory_order_acquire))
    left_.wait(left);
}

void Workers::serve(Worker& worker, std::size_t index) {
  for (std::uint32_t seen = 0;; ++seen) {
    worker.calls.wait(seen);
    if (worker.jobs == nullptr) return;
    worker.jobs->run(index);
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_all();
  }
}

}  // namespace orrery
