// SPDX-License-Identifier: Apache-2.0
// `eval "$(orrery completion bash)"`: made from the table of commands.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"

namespace orrery {
namespace {

class Completion final : public Command {
 public:
  explicit Completion(const Commands& commands) : commands_{commands} {}
  std::string_view name() const override { return "completion"; }
  std::string_view summary() const override { return "a script that completes commands and options in a shell"; }
  std::string_view arguments() const override { return "SHELL"; }
  Arity arity() const override { return {1, 1}; }
  std::vector<std::string> choices() const override { return {"bash"}; }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    if (arguments[0] != "bash") throw unknown_name("shell", arguments[0], choices());
    const std::string text = script(context);
    context.console.out(
        context.json ? nlohmann::json{{"schema_version", kSchemaVersion}, {"script", text}}.dump(2) + "\n" : text);
    return exit_code::kOk;
  }

 private:
  std::string script(AppContext& context) const {
    std::map<std::string, std::string> first;  // words, with those that may follow
    std::string cases, groups;
    for (const auto& c : commands_) {
      const std::string name{c->name()};
      const std::size_t space = name.find(' ');
      std::string& second = first[name.substr(0, space)];
      if (space != std::string::npos) second += name.substr(space);
      std::string flags;
      for (const Flag& f : c->flags()) flags += f.name + " ";
      for (const Flag& f : common_flags(context)) flags += f.name + " ";
      cases += fmt::format("    '{}') options='{}' choices='{}' ;;\n", name, flags, fmt::join(c->choices(), " "));
    }
    std::string all;
    for (const auto& [word, second] : first) {
      all += word + " ";
      if (second.empty()) continue;
      groups +=
          fmt::format("    {0}) [ \"$COMP_CWORD\" -eq 2 ] && choices='{1}' || name=\"{0} ${{COMP_WORDS[2]}}\" ;;\n",
                      word, second.substr(1));
    }
    return fmt::format(R"(_orrery() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" name="${{COMP_WORDS[1]}}" options='' choices=''
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{}' -- "$current")); return
  fi
  case "$name" in
{}  esac
  case "$name" in
{}  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "$choices" -- "$current") $([ -n "$choices" ] || compgen -f -- "$current")) ;;
  esac
}}
complete -F _orrery orrery
)",
                       all, groups, cases);
  }

  const Commands& commands_;
};

}  // namespace

std::unique_ptr<Command> make_completion(const Commands& commands) { return std::make_unique<Completion>(commands); }

}  // namespace orrery
