// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/app/console.hpp"
#include "sim/app/interrupt.hpp"

namespace orrery {

class Wiring;

/// The environment of the process by name.
using Environment = std::map<std::string, std::string>;
Environment process_environment();

/// What commands share. Only the frame makes one.
struct AppContext {
  Console& console;
  Interrupt& interrupt;
  const Wiring& wiring;
  const Environment& environment;
  std::vector<std::string> command_line;  // as typed, for run directories
  bool json = false;
};

/// One option of a command line: `value` names its argument, empty for a switch. `bare`: what it is where no argument
/// follows; empty: one has to.
struct Flag {
  std::string name;   // "--trace"
  std::string value;  // "FILE"
  std::string summary;
  std::function<void(const std::string&)> take;
  std::string bare = {};
};

/// How many arguments a command takes.
struct Arity {
  std::size_t least = 0, most = 0;
};

/// One subcommand. `run` has no parsing, no help text and no catch: the frame does these.
class Command {
 public:
  virtual ~Command() = default;
  /// One word, or two: "model show".
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;
  virtual std::string_view arguments() const { return {}; }
  virtual Arity arity() const { return {}; }
  /// Words that an argument can be, where there are only these.
  virtual std::vector<std::string> choices() const { return {}; }
  virtual std::vector<Flag> flags() { return {}; }
  /// Text below the options in the help.
  virtual std::string details() const { return {}; }
  /// Gives the exit code.
  virtual int run(AppContext& context, const std::vector<std::string>& arguments) = 0;
};

using Commands = std::vector<std::unique_ptr<Command>>;

namespace exit_code {
constexpr int kOk = 0, kMissed = 1, kWrongInput = 2, kDevice = 3, kMissing = 4, kPartial = 5, kSignal = 128;
}

/// Finds the command, reads its options, runs it, and turns what it throws into messages and exit codes.
int run_command_line(const Commands& commands, AppContext& context);

/// The options that every command has.
std::vector<Flag> common_flags(AppContext& context);
std::string help_of(Command& command, AppContext& context);
std::string help_of(const Commands& commands);

}  // namespace orrery
