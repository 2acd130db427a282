// SPDX-License-Identifier: Apache-2.0
#include "calibrate/this_machine.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <optional>
#include <string_view>

#include "sim/machine/cluster.hpp"

namespace orrery {
namespace {

// What is assumed of a virtual machine that does not tell: of the second level, the laws fit a little worse if it is
// wrong; of the last one, how much of it there is, calibration finds below this.
constexpr Bytes kUsualL2 = 1.0_MiB, kMostL3 = 64.0_MiB;

/// What the kernel says of a cache of core 0: "32768K".
std::optional<Bytes> cache_size(int index) {
  std::ifstream file{fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index)};
  double kibibytes = 0;
  if (file >> kibibytes && kibibytes > 0) return kibibytes * 1.0_KiB;
  return {};
}

/// What the C library says of the second level, which it reads elsewhere in the processor. Its answer for the last one
/// counts caches that other machines of a host use.
std::optional<Bytes> second_level_size() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? std::optional{Bytes{double(bytes)}} : std::nullopt;
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

Caches detected_caches() {
  const std::optional<Bytes> l2 = cache_size(2);
  return {l2 ? *l2 : second_level_size().value_or(kUsualL2), cache_size(3).value_or(kMostL3), detected_cores()};
}

std::string detected_processor() { return processor_line("model name").value_or("unknown processor"); }

bool is_virtual_machine() {
  const std::string flags = processor_line("flags").value_or("");
  return (flags + ' ').find(" hypervisor ") != std::string::npos;
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr))); }

}  // namespace orrery
