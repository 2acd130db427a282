// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace orrery {

/// The user stopped the program. Exit code 128 + signal.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal) : signal_{signal} {}
  int signal() const { return signal_; }
  const char* what() const noexcept override { return "interrupted"; }

 private:
  int signal_;
};

/// Waits for Ctrl-C and SIGTERM in a thread of its own. The first one asks the work to stop; if it has not two seconds
/// later, or at the second signal, the process ends: never while a file is being written.
class Interrupt {
 public:
  /// Made first of all: threads that start later leave the signals to this one.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool is_requested() const { return signal_ != 0; }
  /// From here on the first signal leaves the work as much time as it needs.
  void wait_for_work() { is_patient_ = true; }
  /// Throws Interrupted when the user asked to stop.
  void check() const;
  /// Held while files are written.
  [[nodiscard]] std::unique_lock<std::mutex> writing() { return std::unique_lock{writing_}; }

 private:
  void watch();

  std::atomic<int> signal_{0};
  std::atomic<bool> is_over_{false}, is_patient_{false};
  std::mutex writing_;
  std::thread watcher_;
};

}  // namespace orrery
