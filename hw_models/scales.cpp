// SPDX-License-Identifier: Apache-2.0
#include "hw_models/scales.hpp"

#include <fmt/format.h>

#include <cmath>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr KnobInfo kKnobs[kNumKnobs] = {
    {"gemm.rate", "arithmetic of matrix products"},
    {"attention.rate", "arithmetic of attention"},
    {"memory.bandwidth", "rate of the device's memory, and of all that it limits"},
    {"launch.overhead", "time to start an op"},
    {"launch.enqueue", "the part of it that the host thread of a GPU spends"},
    {"link.bandwidth", "rate between the devices of a node"},
    {"link.latency", "first byte between the devices of a node"},
    {"nic.bandwidth", "rate between nodes"},
    {"nic.latency", "first byte between nodes"},
    {"network.bandwidth", "rate of the links between switches alone"},
    {"host_link.bandwidth", "rate between a device and the memory of its node"},
    {"host.rate", "speed of the host's own work"},
    {"disk.bandwidth", "rate of the disks"},
    {"gemm.conversion", "time to convert rows to 8 bits in front of a product"},
};

}  // namespace

std::span<const KnobInfo> knobs() { return kKnobs; }

void Scales::scale(std::string_view name, double factor) {
  if (!(factor > 0) || !std::isfinite(factor))
    throw UserError{fmt::format("parameter {} cannot be scaled by {}", in_quotes(name), factor),
                    "use a number above 0, such as 2 or 0.5"};
  std::vector<std::string> names;
  for (int i = 0; i < kNumKnobs; ++i) {
    if (kKnobs[i].name == name) return scale(static_cast<Knob>(i), factor);
    names.emplace_back(kKnobs[i].name);
  }
  throw unknown_name("parameter", name, names);
}

}  // namespace orrery
