// SPDX-License-Identifier: Apache-2.0
#include "sim/app/run_directory.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/base/sha256.hpp"
#include "sim/timeline/trace_file.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

std::string default_folder(const std::string& id) {
  return fmt::format("runs/{:%Y%m%d-%H%M%S}-{}", fmt::localtime(std::time(nullptr)), id.substr(0, 8));
}

/// A word as a shell reads it back.
std::string shell_word(const std::string& word) {
  const bool is_plain =
      !word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@%") ==
          std::string::npos;
  if (is_plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return out + "'";
}

void write_all(AppContext& context, const std::string& folder, const Scenario& scenario, const nlohmann::json& report,
               std::vector<NamedTrace> traces) {
  const auto lock = context.interrupt.writing();
  fs::create_directories(folder);
  const std::string canonical = canonical_scenario(scenario);
  write_file_atomically(folder + "/resolved.json", canonical);
  write_file_atomically(folder + "/resolved.yaml", to_yaml(resolved_scenario(scenario)));
  write_file_atomically(folder + "/command.txt",
                        fmt::format("{}\n# {}\n", command_text(context.command_line), tool_version()));
  for (NamedTrace& t : traces) {
    const Trace trace{std::move(t.timeline),
                      std::move(t.plans),
                      {{"scenario", scenario.name},
                       {"scenario_id", sha256(canonical)},
                       {"command", command_text(context.command_line)},
                       {"tool", tool_version()}}};
    write_trace(trace, folder + "/" + t.file);
  }
  write_file_atomically(folder + "/report.json", report.dump(2) + "\n");
}

}  // namespace

std::string command_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : " ") + shell_word(w);
  return text;
}

std::string tool_version() { return fmt::format("orrery {} (GCC {})", ORRERY_VERSION, __VERSION__); }

std::vector<Flag> RunDirectoryOptions::flags() {
  return {{"--out", "DIR", "folder for scenario, timeline and report; default runs/<date>-<id>",
           [this](const std::string& v) { path = v; }},
          {"--no-out", "", "leave no folder behind", [this](const std::string&) { disabled = true; }}};
}

std::optional<std::string> write_run_directory(AppContext& context, const RunDirectoryOptions& options,
                                               const Scenario& scenario, const nlohmann::json& report,
                                               std::vector<NamedTrace> traces) {
  if (options.disabled) return {};
  const std::string folder = options.path.empty() ? default_folder(sha256(canonical_scenario(scenario))) : options.path;
  try {
    write_all(context, folder, scenario, report, std::move(traces));
    return folder;
  } catch (const fs::filesystem_error& e) {
    if (!options.path.empty())
      throw DeviceError{fmt::format("cannot make the folder '{}': {}", folder, e.code().message())};
    context.console.warn(fmt::format("no run directory: cannot make '{}': {}", folder, e.code().message()));
  } catch (const DeviceError& e) {
    if (!options.path.empty()) throw;
    context.console.warn(fmt::format("no run directory: {}", e.what()));
  }
  return {};
}

}  // namespace orrery
