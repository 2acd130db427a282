// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_worker.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "sim/app/sweep/point_process.hpp"
#include "sim/base/sha256.hpp"

namespace orrery {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBeat{2000}, kTick{200};

class SweepWorker {
 public:
  SweepWorker(Socket sweep, const SweepWorkerOptions& options, const PointComputerOf& make)
      : sweep_{std::move(sweep)}, options_{options}, make_{make} {}

  WorkerEnd run() {
    while (!end_) {
      wait();
      if (!buffer_.fill(sweep_)) is_lost_ = true;
      take_all();
      if (is_lost_ && !end_) end(WorkerEnd::Why::Lost, "the sweep is gone");
      if (options_.interrupt != nullptr && options_.interrupt->is_requested()) stop();
      for (auto& process : processes_) look_after(process);
      start_points();
      if (is_stopping_ && running() == 0 && !end_) end(WorkerEnd::Why::Stopped, "");
      ask();
    }
    end_->done = done_;
    return *end_;
  }

 private:
  void wait() {
    std::vector<pollfd> waits{{sweep_.get(), POLLIN, 0}};
    for (const auto& p : processes_)
      if (p) waits.push_back({p->answers().get(), POLLIN, 0}), waits.push_back({p->errors().get(), POLLIN, 0});
    poll(waits.data(), waits.size(), milliseconds_to_wait());
  }

  /// Until a point has had its time, but no longer than a tick.
  int milliseconds_to_wait() const {
    double wait = double(kTick.count());
    for (const auto& p : processes_)
      if (p && p->is_busy() && timeout_ > 0) wait = std::min(wait, 1e3 * (timeout_ - seconds_at(*p)));
    return static_cast<int>(std::ceil(std::max(wait, 0.0)));
  }

  static double seconds_at(const PointProcess& p) {
    return std::chrono::duration<double>(Clock::now() - p.since()).count();
  }

  void tell(const json& message) {
    last_told_ = Clock::now();
    if (!send_message(sweep_, MessageKind::Data, message.dump(-1, ' ', false, json::error_handler_t::replace)))
      is_lost_ = true;
  }

  void end(WorkerEnd::Why why, std::string text) { end_ = WorkerEnd{why, std::move(text), 0}; }

  void stop() {
    is_stopping_ = true;
    queue_.clear();
  }

  void take(const Message& m) {
    if (m.kind == MessageKind::Failed) return end(WorkerEnd::Why::Refused, m.text);
    const json j = json::parse(m.text, nullptr, false);
    if (m.kind == MessageKind::Hello) return greet(j);
    const std::string type = j.is_object() ? j.value("type", "") : "";
    if (type == "welcome") {
      plan_ = j.at("plan");
      timeout_ = j.at("timeout");
      processes_.resize(options_.jobs);
    } else if (type == "work") {
      is_asking_ = false;
      if (!is_stopping_)
        for (const json& point : j.at("points")) queue_.push_back(point);
    } else if (type == "stop") {
      stop();
    } else if (type == "over") {
      end(WorkerEnd::Why::Over, "");
    }
  }

  void take_all() {
    try {
      while (const auto m = buffer_.next()) take(*m);
    } catch (const json::exception& e) {
      end(WorkerEnd::Why::Lost, fmt::format("the sweep says what is no message: {}", e.what()));
    }
  }

  void greet(const json& hello) {
    const json answer = {{"version", options_.version},
                         {"proof", greeting_proof(options_.token, hello.value("challenge", ""))},
                         {"jobs", options_.jobs},
                         {"host", own_host()}};
    if (!send_message(sweep_, MessageKind::Hello, answer.dump())) is_lost_ = true;
    buffer_.allow(kLongestSweepMessage);
  }

  void look_after(std::unique_ptr<PointProcess>& process) {
    if (!process) return;
    const bool is_alive = process->listen();
    if (const auto answer = process->answer()) return told(answer->point, answer->outcome);
    const bool is_late = process->is_busy() && timeout_ > 0 && seconds_at(*process) > timeout_;
    if (is_alive && !is_late) return;
    const bool was_busy = process->is_busy();
    const std::size_t point = was_busy ? process->point() : 0;
    const std::string why = process->end_text();
    process.reset();
    if (was_busy)
      tell({{"type", "failed"},
            {"index", point},
            {"error", is_late ? fmt::format("not done after {}", to_text(Seconds{timeout_})) : why}});
  }

  void told(std::size_t point, const json& outcome) {
    const std::string status = outcome.value("status", "");
    const std::string error = outcome.value("error", "");
    if (status == "unsuited") {
      tell({{"type", "unsuited"}, {"error", error}});
      return end(WorkerEnd::Why::Unsuited, error);
    }
    if (status == "failed") return tell({{"type", "failed"}, {"index", point}, {"error", error}});
    ++done_;
    tell({{"type", "done"}, {"index", point}, {"outcome", outcome}});
  }

  void start_points() {
    for (auto& process : processes_) {
      if (queue_.empty() || end_) return;
      if (process && process->is_busy()) continue;
      if (!process) process = std::make_unique<PointProcess>(make_, plan_);
      process->give(queue_.front());
      queue_.pop_front();
    }
  }

  std::size_t running() const {
    return static_cast<std::size_t>(
        std::count_if(processes_.begin(), processes_.end(), [](const auto& p) { return p && p->is_busy(); }));
  }

  /// More points as soon as all that are here are being computed; a sign of life otherwise.
  void ask() {
    if (end_ || plan_.is_null()) return;
    if (!is_asking_ && !is_stopping_ && queue_.empty()) {
      is_asking_ = true;
      tell({{"type", "get"}, {"idle", std::max<std::size_t>(processes_.size() - running(), 1)}});
    }
    if (Clock::now() - last_told_ >= kBeat) tell({{"type", "beat"}});
  }

  Socket sweep_;
  const SweepWorkerOptions& options_;
  const PointComputerOf& make_;
  MessageBuffer buffer_{kLongestGreeting};
  json plan_;
  double timeout_ = 0;  // seconds; 0: none
  std::vector<std::unique_ptr<PointProcess>> processes_;
  std::deque<json> queue_;
  bool is_asking_ = false, is_stopping_ = false, is_lost_ = false;
  std::size_t done_ = 0;
  std::optional<WorkerEnd> end_;
  Clock::time_point last_told_ = Clock::now();
};

}  // namespace

std::string greeting_proof(std::string_view token, std::string_view challenge) {
  const std::string inner = sha256(std::string{token} + "\n" + std::string{challenge});
  return sha256(std::string{token} + "\n" + inner);
}

WorkerEnd work_for_sweep(Socket sweep, const SweepWorkerOptions& options, const PointComputerOf& make) {
  return SweepWorker{std::move(sweep), options, make}.run();
}

}  // namespace orrery
