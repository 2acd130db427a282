// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include "sim/app/commands.hpp"
#include "sim/app/wiring.hpp"

namespace {

/// Plans and timelines of millions of ops come and go: what one gives back stays for the next, without page faults.
void keep_memory() {
#ifdef __GLIBC__
  constexpr int kKept = 1 << 30, kGrowth = 64 << 20;  // bytes
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, kKept);
  mallopt(M_TOP_PAD, kGrowth);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  using namespace orrery;
  keep_memory();
  Interrupt interrupt;
  Console console{terminal_facts()};
  const Environment environment = process_environment();
  const Wiring wiring{environment, [&console](std::string_view text) { console.warn_once(text); }};
  AppContext context{console, interrupt, wiring, environment, {argv, argv + argc}};
  Commands commands;
  add_commands(commands);
  return run_command_line(commands, context);
}
