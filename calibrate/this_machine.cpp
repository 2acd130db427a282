// SPDX-License-Identifier: Apache-2.0
#include "calibrate/this_machine.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <optional>
#include <string_view>

#include "sim/machine/cluster.hpp"

namespace orrery {
namespace {

// What is assumed of a computer that does not tell: the laws fit a little worse if it is wrong.
constexpr Bytes kUsualL2 = 1.0_MiB, kUsualL3 = 16.0_MiB;

/// What the kernel says of a cache of core 0: "32768K". The C library's answer counts caches that other machines of a
/// host use.
Bytes cache_size(int index, Bytes otherwise) {
  std::ifstream file{fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index)};
  double kibibytes = 0;
  return file >> kibibytes && kibibytes > 0 ? kibibytes * 1.0_KiB : otherwise;
}

/// The first line of the kernel's account of its processors that begins so, behind the colon.
std::optional<std::string> processor_line(std::string_view name) {
  std::ifstream info{"/proc/cpuinfo"};
  for (std::string line; std::getline(info, line);)
    if (line.starts_with(name))
      if (const auto colon = line.find(':'); colon != std::string::npos && colon + 2 < line.size())
        return line.substr(colon + 2);
  return {};
}

}  // namespace

Caches detected_caches() { return {cache_size(2, kUsualL2), cache_size(3, kUsualL3), detected_cores()}; }

std::string detected_processor() { return processor_line("model name").value_or("unknown processor"); }

bool is_virtual_machine() {
  const std::string flags = processor_line("flags").value_or("");
  return (flags + ' ').find(" hypervisor ") != std::string::npos;
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr))); }

}  // namespace orrery
