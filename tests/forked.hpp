// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "tests/shared_mailbox.hpp"

namespace orrery::testing {

/// What became of each of some processes: what its function returned, or the text of what it threw behind "error: ".
/// Empty for one that was killed.
inline std::vector<std::string> in_processes(int n, const std::function<std::string(int)>& work) {
  SharedMailbox box;
  std::vector<pid_t> children;
  for (int p = 0; p < n; ++p) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    std::string end;
    try {
      end = work(p);
    } catch (const std::exception& e) {
      end = std::string{"error: "} + e.what();
    }
    box.leave(std::to_string(p), end);
    _exit(0);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  std::vector<std::string> ends;
  for (int p = 0; p < n; ++p) ends.push_back(box.find(std::to_string(p)).value_or(""));
  return ends;
}

}  // namespace orrery::testing
