// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "sim/app/commands.hpp"
#include "sim/base/error.hpp"
#include "sim/base/library.hpp"

namespace orrery {
namespace {

class Gui final : public Command {
 public:
  std::string_view name() const override { return "gui"; }
  std::string_view summary() const override { return "open the timeline explorer"; }
  std::string_view arguments() const override { return "[FILE [OTHER]]"; }
  Arity arity() const override { return {0, 2}; }

  std::vector<Flag> flags() override {
    return {{"--exec", "COMMANDS", "what to do after opening, such as 'colour_by error; picture out.png; quit'",
             [this](const std::string& v) { commands_ = v; }}};
  }

  int run(AppContext&, const std::vector<std::string>& arguments) override {
    const std::string viewer = beside_program("orrery-gui");
    if (!std::filesystem::exists(viewer))
      throw MissingError{
          "this build has no orrery-gui: `apt-get install qt6-base-dev`, then configure with -DORRERY_GUI=ON and build "
          "again"};
    need_display();
    std::vector<std::string> words = {viewer};
    words.insert(words.end(), arguments.begin(), arguments.end());
    if (!commands_.empty()) words.insert(words.end(), {"--exec", commands_});
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    execv(viewer.c_str(), argv.data());
    throw DeviceError{fmt::format("cannot start {}: {}", viewer, std::strerror(errno))};
  }

 private:
  std::string commands_;
};

}  // namespace

void need_display() {
  for (const char* name : {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return;
  throw MissingError{"there is no display: set DISPLAY or WAYLAND_DISPLAY, or QT_QPA_PLATFORM=offscreen with --exec"};
}

std::unique_ptr<Command> make_gui() { return std::make_unique<Gui>(); }

}  // namespace orrery
