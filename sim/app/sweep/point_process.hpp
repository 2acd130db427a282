// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "sim/app/sweep/sweep_worker.hpp"

namespace orrery {

/// A child of this process that computes one point after another, and ends with this one.
class PointProcess {
 public:
  /// Throws DeviceError where no process can be started.
  PointProcess(const PointComputerOf& make, const nlohmann::json& plan);
  /// Kills it.
  ~PointProcess();
  PointProcess(const PointProcess&) = delete;
  PointProcess& operator=(const PointProcess&) = delete;

  void give(const nlohmann::json& point);
  bool is_busy() const { return point_.has_value(); }
  std::size_t point() const { return *point_; }
  std::chrono::steady_clock::time_point since() const { return since_; }

  /// What to wait for: answers, and what it says on stderr.
  const Socket& answers() const { return link_; }
  const Socket& errors() const { return errors_; }
  /// Takes what there is. False when it has ended.
  bool listen();
  /// What came of a point, once: it has none then.
  struct Answer {
    std::size_t point = 0;
    nlohmann::json outcome;
  };
  std::optional<Answer> answer();
  /// Waits for its end, killing it, and tells of it: "killed by signal 6 (Aborted): ...".
  std::string end_text();

 private:
  void read_errors();

  Socket link_, errors_;
  MessageBuffer buffer_{kLongestSweepMessage};
  pid_t child_ = -1;
  std::optional<std::size_t> point_;
  std::chrono::steady_clock::time_point since_;
  std::string tail_;  // of stderr
};

/// Two connected ends. Throws DeviceError.
std::pair<Socket, Socket> connected_pair();
/// In a child that was forked: is killed when its parent `parent` ends, and at once where it has ended already.
void end_with_parent(pid_t parent);

}  // namespace orrery
