// SPDX-License-Identifier: Apache-2.0
#include "sim/app/commands.hpp"
#include "sim/app/wiring.hpp"

int main(int argc, char** argv) {
  using namespace orrery;
  Interrupt interrupt;
  Console console{terminal_facts()};
  const Environment environment = process_environment();
  const Wiring wiring{environment};
  AppContext context{console, interrupt, wiring, environment, {argv, argv + argc}};
  Commands commands;
  add_commands(commands);
  return run_command_line(commands, context);
}
