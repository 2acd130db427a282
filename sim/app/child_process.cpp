// SPDX-License-Identifier: Apache-2.0
#include "sim/app/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr int kPollMilliseconds = 100;

/// In a group of its own, with no signal blocked, printing to a pipe; its process id.
pid_t start(const std::string& program, int output) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  std::array<char*, 2> arguments{const_cast<char*>(program.c_str()), nullptr};
  const int error = posix_spawn(&child, program.c_str(), &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    throw DeviceError{fmt::format("cannot start '{}': {}", program, std::generic_category().message(error))};
  return child;
}

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) throw DeviceError{"there is no pipe left for a program to print to"};
  }
  ~Pipe() {
    close_write();
    close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_write() {
    if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

}  // namespace

ChildEnd run_child(const std::string& program, Seconds limit, const std::function<bool()>& is_stopped) {
  Pipe pipe;
  const pid_t child = start(program, pipe.write_end());
  pipe.close_write();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit.base());
  ChildEnd end;
  bool is_killed = false;
  for (std::array<char, 4096> buffer;;) {
    end.timed_out = std::chrono::steady_clock::now() >= deadline;
    is_killed = end.timed_out || is_stopped();
    if (is_killed) break;
    pollfd ready{pipe.read_end(), POLLIN, 0};
    if (poll(&ready, 1, kPollMilliseconds) <= 0) continue;
    const ssize_t n = read(pipe.read_end(), buffer.data(), buffer.size());
    if (n <= 0) break;
    end.text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  if (is_killed) kill(-child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  end.succeeded = !is_killed && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return end;
}

}  // namespace orrery
