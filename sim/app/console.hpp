// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace orrery {

enum class ColourMode { Auto, Always, Never };
enum class ProgressMode { Auto, Plain, Json, None };

/// Throws UserError that names the modes.
ColourMode colour_mode(std::string_view text);
ProgressMode progress_mode(std::string_view text);

/// What the terminal and the environment allow.
struct TerminalFacts {
  bool out_is_terminal = false, err_is_terminal = false;
  bool no_colour = false;     // NO_COLOR is set, or the terminal is dumb
  bool force_colour = false;  // CLICOLOR_FORCE
  int width = 100;
  std::FILE* out = stdout;
  std::FILE* err = stderr;
};
TerminalFacts terminal_facts();

/// Results go to stdout, all else to stderr; colour and progress as the terminal, the environment and the options say.
class Console {
 public:
  explicit Console(TerminalFacts facts) : facts_{facts} {}

  void set_colour(ColourMode mode) { colour_ = mode; }
  void set_progress(ProgressMode mode) { progress_ = mode; }

  /// Part of the result. Throws DeviceError where it cannot be written.
  void out(std::string_view text);
  /// A remark on stderr; ends the line of progress.
  void note(std::string_view text);
  void warn(std::string_view text);
  /// The same text is not told again.
  void warn_once(std::string_view text);

  /// Says how far a long work is, at most ten times a second (once a second as JSON): one line that is written over on
  /// a terminal.
  void progress(std::string_view stage, double done);
  void end_progress();

  std::string bold(std::string_view text) const { return styled(text, "1"); }
  std::string dim(std::string_view text) const { return styled(text, "2"); }
  std::string good(std::string_view text) const { return styled(text, "32"); }
  std::string bad(std::string_view text) const { return styled(text, "31"); }
  bool has_colour() const;
  int width() const { return facts_.width; }

 private:
  using Clock = std::chrono::steady_clock;
  std::string styled(std::string_view text, std::string_view code) const;
  bool is_due(std::string_view stage, double done, std::chrono::milliseconds gap);
  void draw_line(std::string_view stage, double done);

  TerminalFacts facts_;
  ColourMode colour_ = ColourMode::Auto;
  ProgressMode progress_ = ProgressMode::Auto;
  bool line_open_ = false;
  std::string last_stage_;
  std::set<std::string, std::less<>> warned_;
  Clock::time_point last_shown_{}, stage_start_{};
};

}  // namespace orrery
