// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/app/chrome_event_file.hpp"
#include "sim/program/serving/serving.hpp"

namespace orrery {

/// The steps of served replicas as Chrome JSON, written as they come. A replica is a process with a row of steps, named
/// by whether they compute prompts, answers or both, and counters: tokens of prompts and of answers in a step, requests
/// that run, requests that wait, percent of the pool that is held. Times are simulated.
class ServeTrace {
 public:
  explicit ServeTrace(const std::string& path) : file_{path} {}
  void add(const ServedStep& step);
  void close() { file_.close(); }

 private:
  ChromeEventFile file_;
  std::size_t named_ = 0;  // replicas
};

}  // namespace orrery
