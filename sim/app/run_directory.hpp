// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/command.hpp"
#include "sim/app/scenario.hpp"
#include "sim/timeline/digest.hpp"

namespace orrery {

/// Version of the program, and when which compiler built it.
std::string tool_version();

/// A command line as a shell reads it back.
std::string command_text(const std::vector<std::string>& words);

/// Where a command leaves what it did.
struct RunDirectoryOptions {
  std::string path;       // --out
  bool disabled = false;  // --no-out
  std::vector<Flag> flags();
};

/// One timeline of a run directory.
struct NamedTrace {
  std::string file;  // "timeline.orrery"
  Timeline timeline;
  PlanDigests plans;
};

/// Writes resolved.json, resolved.yaml, command.txt, report.json and the timelines, each whole or not at all, the
/// report last. Gives the folder: the one asked for, or runs/<date>-<time>-<id>; nothing when disabled, or when the
/// working directory cannot be written and no folder was asked for.
std::optional<std::string> write_run_directory(AppContext& context, const RunDirectoryOptions& options,
                                               const Scenario& scenario, const nlohmann::json& report,
                                               std::vector<NamedTrace> traces);

}  // namespace orrery
