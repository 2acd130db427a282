// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "sim/base/units.hpp"

namespace orrery {

/// How a program ended that was started by this one.
struct ChildEnd {
  std::string text;        // what it printed, on stdout and stderr
  bool succeeded = false;  // it ended by itself, with exit code 0
  bool timed_out = false;
};

/// Runs a program without arguments to its end. It and all that it starts are killed after `limit`, and as soon as
/// `is_stopped` says so, which is asked ten times a second. Throws DeviceError when it cannot be started.
ChildEnd run_child(const std::string& program, Seconds limit, const std::function<bool()>& is_stopped);

}  // namespace orrery
