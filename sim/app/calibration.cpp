// SPDX-License-Identifier: Apache-2.0
#include "sim/app/calibration.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "calibrate/campaign.hpp"
#include "calibrate/this_machine.hpp"
#include "runtime/core_watch.hpp"
#include "sim/app/calibration_steps.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {
namespace {

namespace chrono = std::chrono;

constexpr int kProbeSamples = 25;  // a tenth of a second
constexpr double kOtherMachine =
    0.07;  // slower or faster: other kernels, another clock, another host of a virtual machine
constexpr double kHardlyEverQuiet = 0.9;  // of the samples disturbed: another minute is not quieter

/// The days since 1970 of "2026-11-21"; nothing for other texts.
std::optional<int> days_of(const std::string& date) {
  int year = 0;
  unsigned month = 0, day = 0;
  if (std::sscanf(date.c_str(), "%d-%u-%u", &year, &month, &day) != 3) return {};
  const chrono::year_month_day ymd{chrono::year{year}, chrono::month{month}, chrono::day{day}};
  if (!ymd.ok()) return {};
  return chrono::sys_days{ymd}.time_since_epoch().count();
}

bool is_old(const std::string& date) {
  const std::optional<int> then = days_of(date), now = days_of(today());
  return !then || !now || *now - *then > kFreshDays;
}

/// How much slower the computer does a fixed work now than when it was calibrated, relative; 0 where that is not known.
double slowdown_of_core(const HostParameters& host) {
  if (host.probe <= Seconds{0}) return 0;
  expect_quiet_core(host.quiet_core.base());
  DriftProbe probe{DriftProbe::Of::Core};
  for (int i = 0; i < kProbeSamples; ++i) probe.sample();
  return slowdown_since(probe.seconds(), host.probe);
}

}  // namespace

Calibration calibrate_host(const CalibrateOptions& options, AppContext& context) {
  CalibrateOptions named = options;
  named.tool = tool_version();
  const auto progress = [&](const CalibrateProgress& p) {
    context.console.progress(p.stage, p.done);
    return !context.interrupt.is_requested();
  };
  std::optional<Calibration> result = calibrate(
      named, draw_steps(calibration_counts(options.quick), static_cast<std::uint64_t>(options.seed), context.wiring),
      progress);
  context.console.end_progress();
  context.interrupt.check();
  if (!result) throw DeviceError{"the calibration was stopped"};
  for (const std::string& warning : result->warnings) context.console.warn(warning);
  return std::move(*result);
}

Calibration calibrate_to(const std::string& path, const CalibrateOptions& options, AppContext& context) {
  const std::filesystem::path folder = std::filesystem::path{path}.parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw DeviceError{fmt::format("cannot make the folder '{}': {}", folder.string(), error.message())};
  const auto keep = [&](const Calibration& c) {
    const auto lock = context.interrupt.writing();
    write_calibration(c, path);
  };
  Calibration first = calibrate_host(options, context);
  keep(first);
  if (first.disturbed < kOftenDisturbed || first.disturbed > kHardlyEverQuiet) return first;
  context.console.note("measuring once more, since something else used the cores so often");
  Calibration second = calibrate_host(options, context);
  if (second.disturbed >= first.disturbed) return first;
  keep(second);
  return second;
}

std::string reason_to_calibrate(const AppContext& context) {
  const Locations& locations = context.wiring.locations();
  std::error_code ignored;
  if (!std::filesystem::exists(locations.host_parameters(), ignored)) return "this computer was never calibrated";
  HostParameters host;
  try {
    host = context.wiring.host_parameters();
    const Provenance& p = host.provenance;
    if (p.machine != detected_processor())
      return fmt::format("the parameters are of another processor ({})", p.machine);
    if (host.cores < detected_cores())
      return fmt::format("the parameters are of {} of the {} cores that may be used", host.cores, detected_cores());
    if (is_old(p.date)) return fmt::format("the parameters are older than {} days ({})", kFreshDays, p.date);
    if (p.tool != tool_version()) return fmt::format("the parameters were measured by another version ({})", p.tool);
  } catch (const UserError&) {
    return "the parameters cannot be read by this version";
  }
  const double slowdown = slowdown_of_core(host);
  if (std::abs(slowdown) > kOtherMachine)
    return fmt::format("a fixed work takes {:.2f} times as long as when it was calibrated", 1 + slowdown);
  return {};
}

}  // namespace orrery
