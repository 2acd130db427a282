// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "hw_models/scales.hpp"
#include "sim/base/options.hpp"
#include "sim/machine/cost.hpp"

namespace orrery {

/// Whether parameters come from measurements of this device or from what its maker says.
enum class FitStatus : std::uint8_t { Unfitted, Fitted };
std::span<const EnumName<FitStatus>> enum_names(FitStatus);

/// Where the numbers of a parameter file come from.
struct Provenance {
  FitStatus status = FitStatus::Unfitted;
  std::string machine;
  std::string date;
  std::string tool;
  std::string source;

  template <class V>
  void visit(V& v) {
    v.required("status", status, "whether the numbers were fitted to measurements");
    v.required("machine", machine, "device or computer that the numbers describe");
    v.required("date", date, "day of the measurement or of the data sheet's reading");
    v.required("tool", tool, "program and version that wrote the numbers");
    v.required("source", source, "measurement or document");
  }
};

/// How well a device drives its links in collectives, and what it lacks meanwhile. Ops that want all SMs or all memory
/// bandwidth beside a collective that takes a share s of it go 1 + s times as long: on A100, H100, MI210 and MI250 18.9
/// % longer on average and 40 % at most (arXiv:2507.03114, abstract), hence s = 0.19 where nothing was measured.
struct CommunicationParameters {
  double efficiency = 1;
  Seconds overhead;
  double sm_share = 0;
  double memory_share = 0;
  double deviation = 0.05;
  double bias = 0.2;

  template <class V>
  void visit(V& v) {
    v.field("efficiency", efficiency, "part of a link's bandwidth that messages reach", between(0, 1));
    v.field("overhead", overhead, "time to start a collective on a device", at_least(Seconds{0}));
    v.field("sm_share", sm_share, "part of the device's SMs that a collective keeps busy", between(0, 1));
    v.field("memory_share", memory_share, "part of the device's memory bandwidth that a collective takes",
            between(0, 1));
    v.field("deviation", deviation, "relative standard deviation of one message", at_least(0));
    v.field("bias", bias, "relative standard deviation that all messages share", at_least(0));
  }
};

/// Turns work into time on one kind of device. Pure. What leaves the device is the affair of ClusterCostModel, except
/// between the ranks of one computer that are devices themselves.
class DeviceModel {
 public:
  virtual ~DeviceModel() = default;
  virtual std::string_view name() const = 0;
  virtual const Provenance& provenance() const = 0;
  /// Anything but collectives, sends, receives, and copies between tiers.
  virtual OpCost cost(const Work& work, const Bindings& bindings, const Scales& scales) const = 0;
  /// Of an op that the cores of its node do, on all of them, where that was measured; nothing: by their rates.
  virtual std::optional<OpCost> on_host(const Work&, const Bindings&, const Scales&) const { return {}; }
  virtual LaunchCost launch(const Work& work, const Scales& scales) const = 0;
  /// As CostModel says it.
  virtual bool sees_reuse() const { return false; }
  /// Why the cost of this op, by the laws that such scales choose, is outside of what was fitted; empty when it is not.
  virtual std::string extrapolation(const Work& work, const Bindings& bindings, const Scales& scales) const = 0;
  virtual const CommunicationParameters& communication() const = 0;
  /// Memory of one device; nothing when it is the memory of its node.
  virtual std::optional<Bytes> memory() const = 0;
  /// The most arithmetic per second in this type: the denominator of MFU.
  virtual FlopsPerSecond peak(DType type) const = 0;
  /// Between ranks whose devices share memory; nothing where they need a link.
  virtual std::optional<OpCost> collective(const Collective& work, std::int64_t ranks, const Scales& scales) const = 0;
  virtual std::optional<OpCost> transfer(Bytes bytes, const Scales& scales) const = 0;
};

}  // namespace orrery
