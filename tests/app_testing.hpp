// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "sim/app/commands.hpp"
#include "sim/app/wiring.hpp"

namespace orrery::testing {

/// What one command line came to.
struct CommandResult {
  int code = 0;
  std::string out, err;
};

inline std::string contents(std::FILE* file) {
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

inline TerminalFacts no_terminal() {
  TerminalFacts facts;
  facts.out = std::tmpfile();
  facts.err = std::tmpfile();
  return facts;
}

/// Runs a command line inside of this process. There is no terminal, and this computer has the parameters that come
/// with the program, and the GPUs that are given or its own.
inline CommandResult orrery(std::vector<std::string> arguments, Environment environment = {},
                            const GpuSource& gpus = {}) {
  environment.emplace("ORRERY_HOME", "/dev/null/none");
  const TerminalFacts facts = no_terminal();
  Interrupt interrupt;
  Console console{facts};
  const auto warn = [&](std::string_view text) { console.warn_once(text); };
  const Wiring wiring = gpus ? Wiring{environment, gpus, warn} : Wiring{environment, warn};
  arguments.insert(arguments.begin(), "orrery");
  AppContext context{console, interrupt, wiring, environment, arguments};
  Commands commands;
  add_commands(commands);
  CommandResult r;
  r.code = run_command_line(commands, context);
  r.out = contents(facts.out);
  r.err = contents(facts.err);
  std::fclose(facts.out);
  std::fclose(facts.err);
  return r;
}

/// What a command has, without a terminal.
struct QuietApp {
  QuietApp() = default;
  QuietApp(const QuietApp&) = delete;
  QuietApp& operator=(const QuietApp&) = delete;
  ~QuietApp() {
    std::fclose(facts.out);
    std::fclose(facts.err);
  }
  TerminalFacts facts = no_terminal();
  Interrupt interrupt;
  Console console{facts};
  Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  Wiring wiring{environment};
  AppContext context{console, interrupt, wiring, environment, {"orrery", "node-report"}};
};

/// A folder that is gone with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "orrery-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) FAIL("cannot make a temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file and gives its path.
  std::string file(const std::string& name, std::string_view text) const {
    write_file_atomically(*this / name, text);
    return *this / name;
  }

 private:
  std::string path_;
};

}  // namespace orrery::testing
