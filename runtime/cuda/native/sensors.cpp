// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/native/sensors.hpp"

#include <array>
#include <map>

#include "runtime/cuda/native/check.hpp"
#include "sim/base/library.hpp"

namespace orrery {
namespace {

// CUDA 13 brings no header of NVML here; these are its documented types and numbers (NVML API reference, "Device
// Queries"): a result of 0 is success, clock 1 is that of the SMs, sensor 0 that of the chip.
using NvmlDevice = struct nvmlDevice_st*;
constexpr int kSuccess = 0, kClockOfProcessors = 1, kSensorOfChip = 0;

class Nvml final : public Sensors {
 public:
  Nvml() : library_{"NVML", {"libnvidia-ml.so.1"}} {
    library_.find("nvmlInit_v2", init_);
    library_.find("nvmlShutdown", shutdown_);
    library_.find("nvmlDeviceGetHandleByPciBusId_v2", handle_);
    library_.find("nvmlDeviceGetClockInfo", clock_);
    library_.find("nvmlDeviceGetPowerUsage", power_);
    library_.find("nvmlDeviceGetTemperature", temperature_);
    if (init_() != kSuccess) throw MissingError{"NVML does not start"};
  }
  ~Nvml() override { shutdown_(); }

  GpuState read(int device) override {
    GpuState state;
    const NvmlDevice handle = device_of(device);
    if (!handle) return state;
    unsigned megahertz = 0, milliwatts = 0, celsius = 0;
    if (clock_(handle, kClockOfProcessors, &megahertz) == kSuccess) state.clock_hz = 1e6 * megahertz;
    if (power_(handle, &milliwatts) == kSuccess) state.watts = 1e-3 * milliwatts;
    if (temperature_(handle, kSensorOfChip, &celsius) == kSuccess) state.celsius = celsius;
    return state;
  }

 private:
  /// CUDA may count devices in another order: they are told apart by where they sit.
  NvmlDevice device_of(int device) {
    const auto [it, fresh] = devices_.try_emplace(device, nullptr);
    if (!fresh) return it->second;
    std::array<char, 32> place{};
    ORRERY_CUDA(cudaDeviceGetPCIBusId(place.data(), static_cast<int>(place.size()), device));
    if (handle_(place.data(), &it->second) != kSuccess) it->second = nullptr;
    return it->second;
  }

  Library library_;
  std::map<int, NvmlDevice> devices_;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*handle_)(const char*, NvmlDevice*) = nullptr;
  int (*clock_)(NvmlDevice, int, unsigned*) = nullptr;
  int (*power_)(NvmlDevice, unsigned*) = nullptr;
  int (*temperature_)(NvmlDevice, int, unsigned*) = nullptr;
};

}  // namespace

std::unique_ptr<Sensors> open_sensors() {
  try {
    return std::make_unique<Nvml>();
  } catch (const MissingError&) {
    return nullptr;
  }
}

}  // namespace orrery
