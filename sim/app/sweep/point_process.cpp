// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/point_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace orrery {
namespace {

using nlohmann::json;

constexpr std::size_t kTail = 2000;  // bytes of stderr

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

json outcome_of(PointComputer& computer, const json& point) {
  const auto failure = [](std::string_view status, std::string_view why) {
    return json{{"status", status}, {"error", why}};
  };
  const auto start = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  json out;
  try {
    out = {{"status", "done"}, {"result", computer.compute(point)}};
  } catch (const UserError& e) {
    out = failure("refused", e.what());
  } catch (const UnsuitedError& e) {
    return failure("unsuited", e.what());
  } catch (const std::bad_alloc&) {
    return failure("failed", "out of memory");
  } catch (const std::exception& e) {
    return failure("failed", e.what());
  }
  out["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out["cpu_seconds"] = cpu_seconds() - cpu;
  return out;
}

/// What the child does: answers until nobody asks.
void answer_points(const Socket& link, const PointComputerOf& make, const json& plan) {
  const std::unique_ptr<PointComputer> computer = make(plan);
  while (const std::optional<Message> m = receive_message(link)) {
    const json point = json::parse(m->text, nullptr, false);
    const std::string text = outcome_of(*computer, point).dump(-1, ' ', false, json::error_handler_t::replace);
    if (!send_message(link, MessageKind::Data, text)) return;
  }
}

/// The kernel, out of memory, ends this process before those that only wait.
void be_first_to_end() {
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)!write(file, "500", 3);
  close(file);
}

/// Keeps no descriptor but those of the standard and this one.
void close_others(int kept) {
  if (kept > 3) (void)close_range(3, static_cast<unsigned>(kept) - 1, 0);
  (void)close_range(static_cast<unsigned>(kept) + 1, ~0u, 0);
}

}  // namespace

std::pair<Socket, Socket> connected_pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail_call("no sockets for a process");
  return {Socket{ends[0]}, Socket{ends[1]}};
}

void end_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

PointProcess::PointProcess(const PointComputerOf& make, const json& plan) {
  auto [mine, its] = connected_pair();
  auto [told, tells] = connected_pair();
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ < 0) fail_call("cannot start a process");
  if (child_ == 0) {
    end_with_parent(parent);
    be_first_to_end();
    dup2(open("/dev/null", O_RDWR), STDOUT_FILENO);
    dup2(tells.get(), STDERR_FILENO);
    close_others(its.get());
    try {
      answer_points(its, make, plan);
    } catch (const std::exception& e) {
      (void)!write(STDERR_FILENO, e.what(), std::strlen(e.what()));
      _exit(1);
    }
    _exit(0);
  }
  link_ = std::move(mine);
  errors_ = std::move(told);
}

PointProcess::~PointProcess() {
  if (child_ > 0) (void)end_text();
}

void PointProcess::give(const json& point) {
  point_ = point.at("index").get<std::size_t>();
  since_ = std::chrono::steady_clock::now();
  tail_.clear();
  (void)send_message(link_, MessageKind::Data, point.dump());  // where it has ended, it is found so
}

void PointProcess::read_errors() {
  std::array<char, 4096> part;
  for (ssize_t n = 0; (n = recv(errors_.get(), part.data(), part.size(), MSG_DONTWAIT)) > 0;) {
    tail_.append(part.data(), static_cast<std::size_t>(n));
    if (tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
  }
}

bool PointProcess::listen() {
  read_errors();
  return buffer_.fill(link_);
}

std::optional<PointProcess::Answer> PointProcess::answer() {
  const std::optional<Message> m = buffer_.next();
  if (!m || !point_) return {};
  return Answer{*std::exchange(point_, std::nullopt), json::parse(m->text, nullptr, false)};
}

std::string PointProcess::end_text() {
  kill(child_, SIGKILL);
  int status = 0;
  while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  read_errors();
  std::string text = WIFSIGNALED(status)
                         ? fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
                         : fmt::format("ended with {}", WEXITSTATUS(status));
  return tail_.empty() ? text : text + ": " + tail_;
}

}  // namespace orrery
