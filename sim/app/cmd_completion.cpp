// SPDX-License-Identifier: Apache-2.0
// `eval "$(orrery completion bash)"`: made from the table of commands.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"

namespace orrery {
namespace {

class Completion final : public Command {
 public:
  explicit Completion(const Commands& commands) : commands_{commands} {}
  std::string_view name() const override { return "completion"; }
  std::string_view summary() const override { return "a script that completes commands and options in a shell"; }
  std::string_view arguments() const override { return "bash"; }
  Arity arity() const override { return {1, 1}; }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    if (arguments[0] != "bash") throw unknown_name("shell", arguments[0], {"bash"});
    const std::string text = script(context);
    context.console.out(
        context.json ? nlohmann::json{{"schema_version", kSchemaVersion}, {"script", text}}.dump(2) + "\n" : text);
    return exit_code::kOk;
  }

 private:
  std::string script(AppContext& context) const {
    std::set<std::string> first;
    std::string cases;
    for (const auto& c : commands_) {
      const std::string name{c->name()};
      first.insert(name.substr(0, name.find(' ')));
      std::string flags;
      for (const Flag& f : c->flags()) flags += f.name + " ";
      for (const Flag& f : common_flags(context)) flags += f.name + " ";
      cases += fmt::format("    '{}') words='{}' ;;\n", name, flags);
    }
    std::string all;
    for (const std::string& word : first) all += word + " ";
    return fmt::format(R"(_orrery() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words=''
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{}' -- "$current")); return
  fi
  case "${{COMP_WORDS[1]}}" in
    model) [ "$COMP_CWORD" -eq 2 ] && words='show' ;;
    config) [ "$COMP_CWORD" -eq 2 ] && words='show check explain schema' ;;
    trace) [ "$COMP_CWORD" -eq 2 ] && words='info convert' ;;
    list) words='strategies models clusters devices scenarios benchmarks' ;;
  esac
  [ -n "$words" ] || case "${{COMP_WORDS[1]}}" in model|config|trace) set -- "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" ;; *) set -- "${{COMP_WORDS[1]}}" ;; esac
  [ -n "$words" ] || case "$1" in
{}  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "${{words%%-*}}" -- "$current") $(compgen -f -- "$current")) ;;
  esac
}}
complete -F _orrery orrery
)",
                       all, cases);
  }

  const Commands& commands_;
};

}  // namespace

std::unique_ptr<Command> make_completion(const Commands& commands) { return std::make_unique<Completion>(commands); }

}  // namespace orrery
