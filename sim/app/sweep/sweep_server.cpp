// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <map>
#include <utility>

#include "sim/app/command.hpp"
#include "sim/app/sweep/point_process.hpp"
#include "sim/app/sweep/sweep_dispatcher.hpp"
#include "sim/base/sha256.hpp"

namespace orrery {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kServerTick{100};
constexpr std::chrono::seconds kSilence{30};  // a worker beats every two
constexpr int kIdleEnds = 3;                  // of the worker here, one after another, without work

/// Compares in a time that does not tell how much is alike.
bool is_equal_secret(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

struct Connection {
  Socket socket;
  MessageBuffer buffer{kLongestGreeting};
  std::string challenge, host;
  bool is_greeted = false;
  std::size_t hungry = 0;  // slots that wait for work
  pid_t process = 0;       // of the worker here
  Clock::time_point heard = Clock::now();
};

class SweepServer {
 public:
  SweepServer(const json& plan, const std::vector<SweepTask>& tasks, const SweepServerOptions& options,
              const PointComputerOf& make, Console& console, const Interrupt& interrupt)
      : plan_{plan},
        tasks_{tasks},
        options_{options},
        make_{make},
        console_{console},
        interrupt_{interrupt},
        dispatcher_{work_of(tasks), kMostFailures},
        records_(tasks.size()),
        why_(tasks.size()) {}

  ~SweepServer() {
    for (auto& [key, c] : connections_)
      if (c.process > 0) kill(c.process, SIGKILL), reap(c.process);
  }

  SweepOutcome run() {
    if (options_.listen) {
      listening_ = listen_on(options_.listen->host, options_.listen->port);
      options_.on_listen(port_of(listening_));
    }
    if (options_.jobs > 0 && !tasks_.empty()) start_worker();
    while (!dispatcher_.is_over() && !(is_stopping_ && nobody_works())) {
      console_.progress("sweeping", double(dispatcher_.ended()) / double(std::max<std::size_t>(tasks_.size(), 1)));
      if (interrupt_.is_requested() && !is_stopping_) stop();
      wait_and_read();
      feed();
    }
    console_.end_progress();
    outcome_.interrupted = !dispatcher_.is_over();
    for (auto& [key, c] : connections_) (void)tell(c, {{"type", "over"}});
    return outcome_;
  }

 private:
  static std::vector<double> work_of(const std::vector<SweepTask>& tasks) {
    std::vector<double> work;
    for (const SweepTask& t : tasks) work.push_back(t.work);
    return work;
  }

  static void reap(pid_t process) {
    while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  /// The worker of this computer: a child with one end of a pair of sockets, which it serves as others serve TCP.
  void start_worker() {
    auto [mine, its] = connected_pair();
    const pid_t parent = getpid(), child = fork();
    if (child < 0) fail_call("cannot start a worker");
    if (child == 0) {
      end_with_parent(parent);
      for (auto& [key, c] : connections_) Socket{std::move(c.socket)};
      Socket{std::move(mine)};
      Socket{std::move(listening_)};
      work_here(std::move(its));
    }
    add(std::move(mine), child);
  }

  [[noreturn]] void work_here(Socket sweep) {
    try {
      (void)work_for_sweep(std::move(sweep), {options_.jobs, options_.token, options_.version}, make_);
      _exit(0);
    } catch (const std::exception& e) {
      (void)!write(STDERR_FILENO, e.what(), std::strlen(e.what()));
      _exit(exit_code::kDevice);
    }
  }

  bool nobody_works() const {
    return std::none_of(connections_.begin(), connections_.end(), [](const auto& c) { return c.second.is_greeted; });
  }

  void add(Socket socket, pid_t process) {
    Connection& c = connections_[next_key_++];
    c.socket = std::move(socket);
    c.process = process;
    c.challenge = random_secret();
    const timeval patience{10, 0};
    setsockopt(c.socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    (void)send_message(c.socket, MessageKind::Hello, json{{"challenge", c.challenge}}.dump());
  }

  void stop() {
    is_stopping_ = true;
    console_.note("points in work are finished; press Ctrl-C again to leave at once");
    for (auto& [key, c] : connections_) (void)tell(c, {{"type", "stop"}});
  }

  static bool tell(Connection& c, const json& message) {
    return !c.is_greeted || send_message(c.socket, MessageKind::Data, message.dump());
  }

  void wait_and_read() {
    std::vector<pollfd> waits;
    if (listening_) waits.push_back({listening_.get(), POLLIN, 0});
    for (const auto& [key, c] : connections_) waits.push_back({c.socket.get(), POLLIN, 0});
    poll(waits.data(), waits.size(), static_cast<int>(kServerTick.count()));
    if (listening_ && !is_stopping_)
      while (auto fresh = accept_from(listening_, std::chrono::milliseconds{0})) add(std::move(*fresh), 0);
    std::vector<int> gone;
    for (auto& [key, c] : connections_)
      if (!read(key, c)) gone.push_back(key);
    for (const int key : gone) lose(key);
  }

  /// False when the connection is of no more use.
  bool read(int key, Connection& c) {
    const bool is_open = c.buffer.fill(c.socket);
    try {
      while (const auto m = c.buffer.next()) {
        c.heard = Clock::now();
        if (!take(key, c, *m)) return false;
      }
    } catch (const json::exception&) {
      console_.warn(fmt::format("the worker on {} says what is no message", c.host));
      return false;
    }
    return is_open && Clock::now() - c.heard < kSilence;
  }

  bool take(int key, Connection& c, const Message& m) {
    const json j = json::parse(m.text);
    if (!c.is_greeted) return m.kind == MessageKind::Hello && greet(key, c, j);
    const std::string type = j.at("type");
    if (type == "get") c.hungry = j.at("idle");
    if (type == "done") done(key, c, index_of(j), j.at("outcome"));
    if (type == "failed") failed(key, index_of(j), j.at("error"));
    if (type != "unsuited") return true;
    const std::string why = j.at("error");
    if (c.process > 0) throw DeviceError{why};
    console_.warn(fmt::format("the worker on {} cannot take part: {}", c.host, why));
    return false;
  }

  std::size_t index_of(const json& j) const {
    const std::size_t i = j.at("index");
    return i < tasks_.size() ? i : throw json::other_error::create(501, "no such point", &j);
  }

  bool greet(int key, Connection& c, const json& hello) {
    const auto refuse = [&](const std::string& why) {
      (void)send_message(c.socket, MessageKind::Failed, why);
      console_.warn(fmt::format("a worker was refused: {}", why));
      return false;
    };
    if (!is_equal_secret(hello.at("proof"), greeting_proof(options_.token, c.challenge)))
      return refuse("the token is another one");
    const std::string version = hello.at("version");
    if (version != options_.version)
      return refuse(fmt::format("the sweep is of {}, the worker of {}", options_.version, in_quotes(version)));
    c.host = hello.at("host");
    c.is_greeted = true;
    c.buffer.allow(kLongestSweepMessage);
    const std::size_t jobs = hello.at("jobs");
    dispatcher_.join(key, jobs);
    if (c.process == 0) {
      ++outcome_.workers;
      console_.note(fmt::format("{} joins with {} job{}", c.host, jobs, jobs == 1 ? "" : "s"));
    }
    return tell(c, {{"type", "welcome"}, {"plan", plan_}, {"timeout", options_.point_timeout}});
  }

  void done(int key, const Connection& c, std::size_t task, const json& outcome) {
    SweepRecord r = blank(task);
    const bool is_done = outcome.at("status") == "done";
    r.status = is_done ? PointStatus::Done : PointStatus::Refused;
    if (is_done)
      r.result = outcome.at("result");
    else
      r.error = outcome.at("error");
    r.attempts = dispatcher_.failures(task) + 1;
    r.seconds = outcome.at("seconds");
    r.cpu_seconds = outcome.at("cpu_seconds");
    r.host = c.host;
    if (dispatcher_.finish(key, task)) return keep(task, std::move(r));
    if (records_[task]->status == PointStatus::Quarantined || is_same_result(*records_[task], r)) return;
    outcome_.conflicts.push_back(task);
    console_.warn(fmt::format("{} and {} have different results for point {}: the first is kept", records_[task]->host,
                              c.host, tasks_[task].id.substr(0, 8)));
  }

  void failed(int key, std::size_t task, const std::string& why) {
    why_[task] = why;
    if (dispatcher_.fail(key, task)) give_up(task);
  }

  SweepRecord blank(std::size_t task) const {
    SweepRecord r;
    r.id = tasks_[task].id;
    r.scenario = tasks_[task].scenario;
    r.time = std::time(nullptr);
    return r;
  }

  void give_up(std::size_t task) {
    SweepRecord r = blank(task);
    r.status = PointStatus::Quarantined;
    r.attempts = dispatcher_.failures(task);
    r.error = why_[task];
    keep(task, std::move(r));
  }

  void keep(std::size_t task, SweepRecord record) {
    records_[task] = std::move(record);
    options_.on_record(task, *records_[task]);
  }

  void lose(int key) {
    const auto found = connections_.find(key);
    Connection c = std::move(found->second);
    connections_.erase(found);
    const std::string why = fmt::format("the worker on {} ended while it was at this point", c.host);
    const std::vector<std::size_t> at = dispatcher_.held_first(key);
    for (const std::size_t task : at) why_[task] = why;
    for (const std::size_t task : dispatcher_.leave(key)) give_up(task);
    if (c.process > 0) {
      kill(c.process, SIGKILL);
      reap(c.process);
      if (is_stopping_ || dispatcher_.is_over()) return;
      idle_ends_ = at.empty() ? idle_ends_ + 1 : 0;
      if (idle_ends_ >= kIdleEnds) throw DeviceError{"the worker of this computer ends as soon as it starts"};
      start_worker();
    } else if (c.is_greeted && !is_stopping_) {
      console_.note(fmt::format("{} is gone", c.host));
    }
  }

  /// Work for those who wait for it.
  void feed() {
    if (is_stopping_) return;
    for (auto& [key, c] : connections_) {
      if (c.hungry == 0) continue;
      json points = json::array();
      for (const std::size_t task : dispatcher_.take(key, c.hungry)) {
        points.push_back(tasks_[task].message);
        points.back()["index"] = task;
      }
      if (points.empty()) continue;
      c.hungry = 0;
      (void)tell(c, {{"type", "work"}, {"points", std::move(points)}});  // a lost worker is found so when it is read
    }
  }

  const json& plan_;
  const std::vector<SweepTask>& tasks_;
  const SweepServerOptions& options_;
  const PointComputerOf& make_;
  Console& console_;
  const Interrupt& interrupt_;
  SweepDispatcher dispatcher_;
  std::vector<std::optional<SweepRecord>> records_;
  std::vector<std::string> why_;  // each task failed last
  Socket listening_;
  std::map<int, Connection> connections_;
  int next_key_ = 0, idle_ends_ = 0;
  bool is_stopping_ = false;
  SweepOutcome outcome_;
};

}  // namespace

SweepOutcome serve_sweep(const json& plan, const std::vector<SweepTask>& tasks, const SweepServerOptions& options,
                         const PointComputerOf& make, Console& console, const Interrupt& interrupt) {
  return SweepServer{plan, tasks, options, make, console, interrupt}.run();
}

}  // namespace orrery
