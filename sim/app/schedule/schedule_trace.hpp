// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/app/chrome_event_file.hpp"
#include "sim/app/schedule/schedule_case.hpp"

namespace orrery {

/// Who had which GPU when, as Chrome JSON: a node is a process, a GPU a thread of it, with the jobs it worked for, and
/// what starting or rescaling them took in front.
class ScheduleTrace {
 public:
  ScheduleTrace(const std::string& path, const ScheduleCase& c);
  void add(const JobStay& stay);
  void close() { file_.close(); }

 private:
  const ScheduleCase& case_;
  ChromeEventFile file_;
};

}  // namespace orrery
