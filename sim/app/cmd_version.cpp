// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {
namespace {

class Version final : public Command {
 public:
  std::string_view name() const override { return "version"; }
  std::string_view summary() const override { return "version of the program, and where it looks for files"; }

  int run(AppContext& context, const std::vector<std::string>&) override {
    const Locations& l = context.wiring.locations();
    if (context.json)
      context.console.out(nlohmann::json{{"schema_version", kSchemaVersion},
                                         {"version", tool_version()},
                                         {"scenarios", l.scenarios()},
                                         {"parameters", l.parameter_folders()},
                                         {"devices", {"host", "null", "cuda"}}}
                              .dump(2) +
                          "\n");
    else
      context.console.out(fmt::format("{}\n  scenarios   {}\n  parameters  {}\n", tool_version(), l.scenarios(),
                                      fmt::join(l.parameter_folders(), ", then ")));
    return exit_code::kOk;
  }
};

}  // namespace

std::unique_ptr<Command> make_version() { return std::make_unique<Version>(); }

}  // namespace orrery
