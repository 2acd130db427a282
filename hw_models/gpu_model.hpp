// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hw_models/gpu_parameters.hpp"

namespace orrery {

/// A GPU by rooflines: each op takes a launch and the longer of its arithmetic on the SMs that it fills and its memory
/// traffic.
class GpuModel final : public DeviceModel {
 public:
  GpuModel(std::string name, GpuParameters parameters) : name_{std::move(name)}, gpu_{std::move(parameters)} {}

  std::string_view name() const override { return name_; }
  const Provenance& provenance() const override { return gpu_.provenance; }
  OpCost cost(const Work& work, const Bindings& bindings, const Scales& scales) const override;
  LaunchCost launch(const Work& work, const Scales& scales) const override;
  std::string extrapolation(const Work& work, const Bindings& bindings) const override;
  const CommunicationParameters& communication() const override { return gpu_.communication; }
  std::optional<Bytes> memory() const override { return gpu_.memory; }
  FlopsPerSecond peak(DType type) const override;
  std::optional<OpCost> collective(const Collective&, std::int64_t, const Scales&) const override { return {}; }
  std::optional<OpCost> transfer(Bytes, const Scales&) const override { return {}; }

 private:
  /// The two sides of a roofline, without the launch.
  struct Roofline {
    Seconds math, memory;
    double sm_share = 1;  // of the SMs that the arithmetic fills
    double bias = 0;
  };
  Roofline roofline(const Gemm& g, const Scales& scales) const;
  Roofline roofline(const GroupedGemm& g, const Scales& scales) const;
  Roofline attention(const AttentionShape& shape, const Amount& amount, double efficiency, const Bindings& b,
                     const Scales& scales) const;
  Roofline stream(const Amount& amount, const Scales& scales) const;
  Roofline roofline(const Work& work, const Bindings& bindings, const Scales& scales) const;
  Seconds memory_time(Bytes moved, const Scales& scales) const;
  OpCost host_work(const HostWork& work, const Scales& scales) const;

  std::string name_;
  GpuParameters gpu_;
};

}  // namespace orrery
