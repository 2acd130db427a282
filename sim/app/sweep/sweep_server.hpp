// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/console.hpp"
#include "sim/app/interrupt.hpp"
#include "sim/app/sweep/sweep_meeting.hpp"
#include "sim/app/sweep/sweep_record.hpp"
#include "sim/app/sweep/sweep_worker.hpp"

namespace orrery {

/// A point that is to be computed.
struct SweepTask {
  std::string id, scenario;
  nlohmann::json message;  // what the worker gets, beside its place in the list of tasks
  double work = 0;
};

struct SweepServerOptions {
  std::size_t jobs = 1;                 // points at once on this computer; 0: others do all of it
  std::optional<ListenAt> listen = {};  // null: nobody joins
  std::string token = {}, version = {};
  double point_timeout = 0;  // seconds; 0: none
  std::function<void(std::uint16_t port)> on_listen = [](std::uint16_t) {};
  std::function<void(std::size_t task, const SweepRecord&)> on_record = {};  // how a task ended, once for each
};

/// How the tasks of a sweep were done.
struct SweepOutcome {
  bool interrupted = false;
  std::vector<std::size_t> conflicts;  // tasks for which two workers had different results
  std::size_t workers = 0;             // that joined, without those of this computer
};

constexpr int kMostFailures = 3;

/// Gives tasks to workers until each has ended, or until the user asks to stop: then those in work are finished. Says
/// who joins and leaves. Throws DeviceError.
SweepOutcome serve_sweep(const nlohmann::json& plan, const std::vector<SweepTask>& tasks,
                         const SweepServerOptions& options, const PointComputerOf& make, Console& console,
                         const Interrupt& interrupt);

}  // namespace orrery
