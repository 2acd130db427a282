// SPDX-License-Identifier: Apache-2.0
#include "calibrate/this_machine.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

namespace orrery {
namespace {

// What is assumed of a computer that does not tell: the laws fit a little worse if it is wrong.
constexpr Bytes kUsualL2 = 1.0_MiB, kUsualL3 = 16.0_MiB;

Bytes cache_size(int name, Bytes otherwise) {
  const long size = sysconf(name);
  return size > 0 ? Bytes{static_cast<double>(size)} : otherwise;
}

}  // namespace

Caches detected_caches() {
  return {cache_size(_SC_LEVEL2_CACHE_SIZE, kUsualL2), cache_size(_SC_LEVEL3_CACHE_SIZE, kUsualL3)};
}

std::string detected_processor() {
  std::ifstream info{"/proc/cpuinfo"};
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      const auto colon = line.find(':');
      if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
    }
  return "unknown processor";
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr))); }

}  // namespace orrery
