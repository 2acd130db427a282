// SPDX-License-Identifier: Apache-2.0
// The frame of all commands: options, help, exit codes.
#include "sim/app/command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

struct Found {
  Command* command = nullptr;
  std::size_t words = 0;  // of the command line that name it
};

std::vector<std::string> words_of(const std::vector<std::string>& line) { return {line.begin() + 1, line.end()}; }

/// The words of a command's name.
std::vector<std::string> split(const std::string& name) {
  const std::size_t space = name.find(' ');
  if (space == std::string::npos) return {name};
  return {name.substr(0, space), name.substr(space + 1)};
}

Found find_command(const Commands& commands, const std::vector<std::string>& words) {
  for (const std::size_t n : {std::size_t{2}, std::size_t{1}}) {
    if (words.size() < n) continue;
    const std::string name = n == 2 ? words[0] + " " + words[1] : words[0];
    for (const auto& c : commands)
      if (c->name() == name) return {c.get(), n};
  }
  return {};
}

std::vector<std::string> names_of(const Commands& commands) {
  std::vector<std::string> names;
  for (const auto& c : commands) names.emplace_back(c->name());
  return names;
}

/// The commands that start with this word: those of `orrery model`.
std::vector<std::string> names_below(const Commands& commands, const std::string& word) {
  std::vector<std::string> names;
  for (const std::string& name : names_of(commands))
    if (name.starts_with(word + " ")) names.push_back(name);
  return names;
}

[[noreturn]] void fail_unknown(const Commands& commands, const std::vector<std::string>& words) {
  const std::vector<std::string> below = names_below(commands, words[0]);
  if (below.empty()) throw unknown_name("command", words[0], names_of(commands));
  if (words.size() == 1)
    throw UserError{fmt::format("'orrery {}' needs one more word", words[0]),
                    fmt::format("known commands: {}", fmt::join(below, ", "))};
  throw unknown_name("command", words[0] + " " + words[1], below);
}

const Flag& find_flag(const std::vector<Flag>& flags, std::string_view name, const Command& command) {
  std::vector<std::string> known;
  for (const Flag& f : flags) {
    if (f.name == name) return f;
    known.push_back(f.name);
  }
  throw UserError{fmt::format("unknown option {} of 'orrery {}'", in_quotes(name), command.name()),
                  name_hint("option", name, known)};
}

/// Gives options their values and returns what is left.
std::vector<std::string> read_flags(const std::vector<Flag>& flags, const std::vector<std::string>& words,
                                    std::size_t first, const Command& command) {
  std::vector<std::string> rest;
  for (std::size_t i = first; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      rest.insert(rest.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      break;
    }
    if (word.size() < 2 || word[0] != '-') {
      rest.push_back(word);
      continue;
    }
    const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const Flag& flag = find_flag(flags, word.substr(0, equals), command);
    if (flag.value.empty()) {
      if (equals != std::string::npos) throw UserError{fmt::format("option {} takes no value", flag.name)};
      flag.take({});
    } else if (equals != std::string::npos) {
      flag.take(word.substr(equals + 1));
    } else if (!flag.bare.empty() && (i + 1 == words.size() || words[i + 1].starts_with("--"))) {
      flag.take(flag.bare);
    } else {
      if (i + 1 == words.size()) throw UserError{fmt::format("option {} needs a value: {}", flag.name, flag.value)};
      flag.take(words[++i]);
    }
  }
  return rest;
}

void check_arity(const Command& command, const std::vector<std::string>& arguments) {
  const Arity a = command.arity();
  if (arguments.size() >= a.least && arguments.size() <= a.most) return;
  const std::string usage = fmt::format("usage: orrery {} {}", command.name(), command.arguments());
  if (arguments.size() < a.least) {
    const std::vector<std::string> choices = command.choices();
    throw UserError{
        fmt::format("'orrery {}' needs {}{}", command.name(), command.arguments(),
                    arguments.empty() ? "" : fmt::format(", given is only {}", in_quotes(arguments.front()))),
        choices.empty() ? usage : fmt::format("{} is one of {}", command.arguments(), fmt::join(choices, ", "))};
  }
  throw UserError{fmt::format("unexpected argument {}", in_quotes(arguments[a.most])), usage};
}

bool asks_for_help(const std::vector<std::string>& words) {
  for (const std::string& w : words) {
    if (w == "--") return false;
    if (w == "--help" || w == "-h") return true;
  }
  return false;
}

int dispatch(const Commands& commands, AppContext& context) {
  const std::vector<std::string> words = words_of(context.command_line);
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || (words[0] == "help" && words.size() == 1)) {
    context.console.out(help_of(commands));
    return words.empty() ? exit_code::kWrongInput : exit_code::kOk;
  }
  if (words[0] == "help") {
    context.command_line.erase(context.command_line.begin() + 1);
    context.command_line.emplace_back("--help");
    return dispatch(commands, context);
  }
  if (words[0] == "--version") {
    context.command_line[1] = "version";
    return dispatch(commands, context);
  }
  if (words[0].starts_with('-'))
    throw UserError{fmt::format("{} stands before the command", in_quotes(words[0])),
                    "options come behind it: orrery COMMAND [options] [arguments]"};
  const Found found = find_command(commands, words);
  if (found.command == nullptr) {
    const std::vector<std::string> below = names_below(commands, words[0]);
    if (below.empty() || words.size() < 2 || words[1][0] != '-' || !asks_for_help(words)) fail_unknown(commands, words);
    for (const std::string& name : below)
      context.console.out((name == below.front() ? "" : "\n") +
                          help_of(*find_command(commands, split(name)).command, context));
    return exit_code::kOk;
  }
  if (asks_for_help(words)) {
    context.console.out(help_of(*found.command, context));
    return exit_code::kOk;
  }
  std::vector<Flag> flags = found.command->flags();
  for (Flag& f : common_flags(context)) flags.push_back(std::move(f));
  const std::vector<std::string> arguments = read_flags(flags, words, found.words, *found.command);
  check_arity(*found.command, arguments);
  return found.command->run(context, arguments);
}

std::string flag_text(const Flag& f) { return f.value.empty() ? f.name : f.name + " " + f.value; }

}  // namespace

Environment process_environment() {
  Environment out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

std::vector<Flag> common_flags(AppContext& context) {
  Console& console = context.console;
  return {{"--json", "", "print one JSON document on stdout", [&context](const std::string&) { context.json = true; }},
          {"--color", "WHEN", "auto, always or never",
           [&console](const std::string& v) { console.set_colour(colour_mode(v)); }},
          {"--progress", "HOW", "auto, plain, json or none; on stderr",
           [&console](const std::string& v) { console.set_progress(progress_mode(v)); }},
          {"--help", "", "print this text", [](const std::string&) {}}};
}

std::string help_of(Command& command, AppContext& context) {
  std::string text =
      fmt::format("orrery {}: {}\n\nusage: orrery {} [options]{}{}\n\n", command.name(), command.summary(),
                  command.name(), command.arguments().empty() ? "" : " ", command.arguments());
  std::vector<Flag> flags = command.flags();
  for (Flag& f : common_flags(context)) flags.push_back(std::move(f));
  Table table{{{"option"}, {"meaning", Align::Left, Wrap::Yes}}};
  for (const Flag& f : flags) table.add({flag_text(f), f.summary});
  text += table.text();
  const std::string details = command.details();
  return details.empty() ? text : text + "\n" + details;
}

std::string help_of(const Commands& commands) {
  std::string text =
      "orrery: predict, run and explain deep learning on clusters\n\nusage: orrery COMMAND [options] [arguments]\n\n";
  Table table{{{"command"}, {"what it does"}}};
  for (const auto& c : commands) table.add({std::string{c->name()}, std::string{c->summary()}});
  return text + table.text() + "\n`orrery COMMAND --help` shows the options of a command.\n";
}

int run_command_line(const Commands& commands, AppContext& context) {
  const auto say = [&](const std::exception& e) { context.console.note(fmt::format("orrery: {}", e.what())); };
  try {
    return dispatch(commands, context);
  } catch (const Interrupted& e) {
    context.console.note("orrery: interrupted");
    return exit_code::kSignal + e.signal();
  } catch (const UserError& e) {
    say(e);
    return exit_code::kWrongInput;
  } catch (const MissingError& e) {
    say(e);
    return exit_code::kMissing;
  } catch (const DeviceError& e) {
    say(e);
    return exit_code::kDevice;
  } catch (const std::bad_alloc&) {
    context.console.note("orrery: out of memory");
    return exit_code::kDevice;
  }
}

}  // namespace orrery
