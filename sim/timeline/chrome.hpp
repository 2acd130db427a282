// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "sim/timeline/digest.hpp"

namespace orrery {

/// A trace as Chrome trace-event JSON: complete events with pid = rank and tid = stream, counters for memory, names as
/// metadata, flow arrows for dependencies. Times are microseconds since the start with three decimals, so that a double
/// holds each nanosecond.
std::string write_chrome(const Trace& trace);

/// Reads what `write_chrome` writes, event by event; UserError for anything else.
Trace read_chrome(std::string_view text, const std::string& file);

}  // namespace orrery
