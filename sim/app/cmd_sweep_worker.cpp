// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/sweep/sweep_meeting.hpp"
#include "sim/app/sweep/sweep_points.hpp"
#include "sim/machine/cluster.hpp"

namespace orrery {
namespace {

class SweepWorkerCommand final : public Command {
 public:
  std::string_view name() const override { return "sweep-worker"; }
  std::string_view summary() const override { return "compute points of a sweep that runs elsewhere"; }
  std::string_view arguments() const override { return "HOST:PORT|DIR"; }
  Arity arity() const override { return {1, 1}; }
  std::string details() const override {
    return R"(Joins an `orrery sweep --listen` by its address, or by its folder --out where that is seen here: it waits five
minutes for it. A worker may join and leave at any time; Ctrl-C finishes the points in work. Scenarios that are files
have to have the same paths here.
)";
  }

  std::vector<Flag> flags() override {
    return {{"--jobs", "N", "points at once; default the cores of this computer",
             [this](const std::string& v) { jobs_ = integer_option("--jobs", v, 1); }},
            {"--token", "FILE", "file that holds the token of the sweep; default the one in DIR",
             [this](const std::string& v) { token_ = v; }}};
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const SweepMeeting meeting = find_sweep(arguments[0], token_, [&] { context.interrupt.check(); });
    std::optional<Socket> socket = connect_to(meeting.at.host, meeting.at.port);
    if (!socket) throw DeviceError{fmt::format("no sweep listens on {}:{}", meeting.at.host, meeting.at.port)};
    context.interrupt.wait_for_work();
    const SweepWorkerOptions options{.jobs = static_cast<std::size_t>(jobs_ > 0 ? jobs_ : detected_cores()),
                                     .token = meeting.token,
                                     .version = tool_version(),
                                     .interrupt = &context.interrupt};
    const WorkerEnd end = work_for_sweep(std::move(*socket), options, point_computers(context));
    context.console.out(context.json
                            ? nlohmann::json{{"schema_version", kSchemaVersion}, {"done", end.done}}.dump(2) + "\n"
                            : fmt::format("{} point{} done\n", end.done, end.done == 1 ? "" : "s"));
    context.interrupt.check();
    if (end.why == WorkerEnd::Why::Over || end.why == WorkerEnd::Why::Stopped) return exit_code::kOk;
    throw DeviceError{end.text};
  }

 private:
  std::int64_t jobs_ = 0;
  std::string token_;
};

}  // namespace

std::unique_ptr<Command> make_sweep_worker() { return std::make_unique<SweepWorkerCommand>(); }

}  // namespace orrery
