// SPDX-License-Identifier: Apache-2.0
#include "sim/app/console.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

template <class Mode>
Mode mode_of(std::string_view what, std::string_view text, const std::vector<std::pair<std::string, Mode>>& modes) {
  std::vector<std::string> known;
  for (const auto& [name, mode] : modes) {
    if (name == text) return mode;
    known.push_back(name);
  }
  throw unknown_name(what, text, known);
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

void write_to(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

}  // namespace

ColourMode colour_mode(std::string_view text) {
  return mode_of<ColourMode>(
      "colour mode", text, {{"auto", ColourMode::Auto}, {"always", ColourMode::Always}, {"never", ColourMode::Never}});
}

ProgressMode progress_mode(std::string_view text) {
  return mode_of<ProgressMode>("progress mode", text,
                               {{"auto", ProgressMode::Auto},
                                {"plain", ProgressMode::Plain},
                                {"json", ProgressMode::Json},
                                {"none", ProgressMode::None}});
}

TerminalFacts terminal_facts() {
  TerminalFacts facts;
  facts.out_is_terminal = isatty(STDOUT_FILENO) == 1;
  facts.err_is_terminal = isatty(STDERR_FILENO) == 1;
  const char* terminal = std::getenv("TERM");
  facts.no_colour = is_set("NO_COLOR") || (terminal != nullptr && std::string_view{terminal} == "dumb");
  facts.force_colour = is_set("CLICOLOR_FORCE") && std::string_view{std::getenv("CLICOLOR_FORCE")} != "0";
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) facts.width = size.ws_col;
  return facts;
}

bool Console::has_colour() const {
  if (colour_ != ColourMode::Auto) return colour_ == ColourMode::Always;
  if (facts_.no_colour) return false;
  return facts_.force_colour || facts_.out_is_terminal;
}

std::string Console::styled(std::string_view text, std::string_view code) const {
  return has_colour() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string{text};
}

void Console::out(std::string_view text) {
  end_progress();
  errno = 0;
  write_to(facts_.out, text);
  if (std::ferror(facts_.out) != 0)
    throw DeviceError{fmt::format("cannot write the result: {}", std::generic_category().message(errno))};
}

void Console::note(std::string_view text) {
  end_progress();
  write_to(facts_.err, fmt::format("{}\n", text));
}

void Console::warn(std::string_view text) { note(fmt::format("warning: {}", text)); }

void Console::warn_once(std::string_view text) {
  if (warned_.emplace(text).second) warn(text);
}

bool Console::is_due(std::string_view stage, double done, std::chrono::milliseconds gap) {
  const auto now = Clock::now();
  const bool is_new = stage != last_stage_;
  if (!is_new && done < 1 && now - last_shown_ < gap) return false;
  if (is_new) stage_start_ = now;
  last_stage_ = stage;
  last_shown_ = now;
  return true;
}

void Console::draw_line(std::string_view stage, double done) {
  constexpr int kBar = 24;
  const int filled = static_cast<int>(std::clamp(done, 0.0, 1.0) * kBar);
  const double elapsed = std::chrono::duration<double>(Clock::now() - stage_start_).count();
  write_to(facts_.err, fmt::format("\r\x1b[K{:<14} [{}{}] {:3.0f} % {:5.1f} s", stage,
                                   std::string(static_cast<std::size_t>(filled), '='),
                                   std::string(static_cast<std::size_t>(kBar - filled), ' '), 100 * done, elapsed));
  line_open_ = true;
}

void Console::progress(std::string_view stage, double done) {
  ProgressMode mode = progress_;
  if (mode == ProgressMode::Auto) mode = facts_.err_is_terminal ? ProgressMode::Auto : ProgressMode::None;
  if (mode == ProgressMode::None) return;
  const bool is_json = mode == ProgressMode::Json;
  if (!is_due(stage, done, std::chrono::milliseconds{is_json ? 1000 : 100})) return;
  if (is_json)
    write_to(facts_.err, nlohmann::json{{"stage", stage}, {"done", done}}.dump() + "\n");
  else if (mode == ProgressMode::Plain)
    write_to(facts_.err, fmt::format("{} {:.0f} %\n", stage, 100 * done));
  else
    draw_line(stage, done);
}

void Console::end_progress() {
  if (!line_open_) return;
  write_to(facts_.err, "\r\x1b[K");
  line_open_ = false;
}

}  // namespace orrery
