// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/app/partial_file.hpp"
#include "sim/program/serving/serving.hpp"

namespace orrery {

/// The steps of served replicas as Chrome JSON, written as they come: the file grows, memory does not. A replica is a
/// process with a row of steps, named by whether they compute prompts, answers or both, and counters: tokens of prompts
/// and of answers in a step, requests that run, requests that wait, percent of the pool that is held. Times are
/// simulated.
class ServeTrace {
 public:
  /// Throws UserError for a name that does not end in .json, DeviceError when the file cannot be written.
  explicit ServeTrace(const std::string& path);
  void add(const ServedStep& step);
  /// Ends the file; throws DeviceError when not all of it could be written. Without it the file is deleted.
  void close();

 private:
  void event(const std::string& json);
  void name_replica(std::size_t replica);

  PartialFile file_;
  std::size_t named_ = 0;  // replicas
  bool first_ = true;
};

}  // namespace orrery
