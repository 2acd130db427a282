// SPDX-License-Identifier: Apache-2.0
#include "sim/app/interrupt.hpp"

#include <signal.h>
#include <unistd.h>

namespace orrery {
namespace {

constexpr int kGraceSeconds = 2;

/// SIGUSR1 is how the destructor wakes the watcher.
sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&set, s);
  return set;
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  watcher_ = std::thread{[this] { watch(); }};
}

Interrupt::~Interrupt() {
  is_over_ = true;
  pthread_kill(watcher_.native_handle(), SIGUSR1);
  watcher_.join();
}

void Interrupt::watch() {
  const sigset_t set = watched_signals();
  int signal = 0;
  while (sigwait(&set, &signal) == 0) {
    if (is_over_) return;
    if (signal == SIGUSR1) continue;
    signal_ = signal;
    break;
  }
  const timespec grace{kGraceSeconds, 0};
  int next = 0;
  do next = sigtimedwait(&set, nullptr, &grace);
  while (!is_over_ && (next == SIGUSR1 || (next < 0 && is_patient_)));
  if (is_over_) return;
  const std::unique_lock lock{writing_};
  if (!is_over_) _exit(128 + signal_);
}

void Interrupt::check() const {
  if (signal_ != 0) throw Interrupted{signal_};
}

}  // namespace orrery
