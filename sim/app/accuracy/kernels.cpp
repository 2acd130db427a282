// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/kernels.hpp"

#include <fmt/format.h>

#include <cmath>

#include "calibrate/statistics.hpp"
#include "sim/app/accuracy/devices.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {
namespace {

/// Seconds of ops one after another, and one standard deviation of the logarithm of the truth over it.
struct Sum {
  double seconds = 0, deviation = 0;
};

/// Ops of one kind in one measurement are alike: they err together. Variances of the sums by kind add.
Sum sum_of(const DeviceModel& device, const std::vector<Work>& works) {
  Sum s;
  std::map<std::size_t, double> by_kind;
  for (const Work& w : works) {
    const OpCost c = device.cost(w, {}, {});
    const double t = c.duration.base();
    s.seconds += t;
    by_kind[w.index()] += t * c.error();
  }
  double variance = 0;
  for (const auto& [kind, t] : by_kind) variance += t * t;
  s.deviation = s.seconds > 0 ? std::sqrt(variance) / s.seconds : 0;
  return s;
}

class KernelPredictor final : public RowPredictor {
 public:
  KernelPredictor(std::vector<std::string> folders, KernelRow (*read)(const CsvRow& row))
      : devices_{std::move(folders)}, read_{read} {}

  RowResult predict(const CsvRow& row) const override {
    KernelRow read = read_(row);
    if (auto* skip = std::get_if<Skip>(&read)) return std::move(*skip);
    const KernelCase& c = std::get<KernelCase>(read);
    const DeviceModel* device = devices_.find(c.device);
    if (!device) return Skip{SkipReason::UnknownDevice, c.gpu};
    for (const Work& w : c.works)
      if (const auto* g = std::get_if<Gemm>(&w); g && !has_type(*device, g->dtype))
        return Skip{SkipReason::UnsupportedPrecision, fmt::format("{} on {}", name_of(g->dtype), c.device)};
    return RowPrediction{{observation(c, *device)}, {}};
  }

 private:
  static bool has_type(const DeviceModel& device, DType type) {
    try {
      return device.peak(type) > FlopsPerSecond{0};
    } catch (const UserError&) {
      return false;
    }
  }

  static Observation observation(const KernelCase& c, const DeviceModel& device) {
    const Sum s = sum_of(device, c.works);
    Observation o;
    o.measured = c.seconds;
    o.predicted = s.seconds;
    o.low = s.seconds * std::exp(-kNinetyPercent * s.deviation);
    o.high = s.seconds * std::exp(kNinetyPercent * s.deviation);
    o.gpu = c.gpu;
    o.op = c.op;
    o.source = c.harness;
    o.key = c.key;
    o.size = c.size;
    return o;
  }

  Devices devices_;
  KernelRow (*read_)(const CsvRow& row);
};

}  // namespace

std::unique_ptr<RowPredictor> make_kernel_predictor(const Wiring& wiring, KernelRow (*read)(const CsvRow& row)) {
  return std::make_unique<KernelPredictor>(wiring.locations().parameter_folders(), read);
}

}  // namespace orrery
