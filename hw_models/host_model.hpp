// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "hw_models/host_laws.hpp"
#include "hw_models/host_parameters.hpp"

namespace orrery {

/// One thread of a CPU, by fitted laws: t = Σ coefficient · feature, see host_laws.hpp.
class HostModel final : public DeviceModel {
 public:
  HostModel(std::string name, HostParameters parameters);

  std::string_view name() const override { return name_; }
  const Provenance& provenance() const override { return host_.provenance; }
  OpCost cost(const Work& work, const Bindings& bindings, const Scales& scales) const override;
  LaunchCost launch(const Work& work, const Scales& scales) const override;
  bool sees_reuse() const override { return true; }
  std::string extrapolation(const Work& work, const Bindings& bindings, const Scales& scales) const override;
  const CommunicationParameters& communication() const override { return host_.communication; }
  std::optional<Bytes> memory() const override { return {}; }
  FlopsPerSecond peak(DType type) const override;
  std::optional<OpCost> collective(const Collective& work, std::int64_t ranks, const Scales& scales) const override;
  std::optional<OpCost> transfer(Bytes bytes, const Scales& scales) const override;

  const HostParameters& parameters() const { return host_; }

 private:
  /// A law with its coefficients in the order of its features.
  struct Law {
    const LawForm* form = nullptr;
    std::array<double, kMaxFeatures> coefficients{};  // seconds per unit
    std::array<double, kMaxAxes> least{}, most{};
    double deviation = 0, bias = 0, memory = 0, floor = 0;  // floor: seconds
    CoreSensitivity sensitivity;
    bool fitted = false;  // for this kind and variant, not borrowed from another one
    std::string name;
  };
  static Law make_law(const std::string& name, const LawForm& form, const LawFit& fit);
  void borrow_missing();
  const Law* nearest(std::size_t slot) const;
  double slowdown(std::int64_t ranks) const;
  OpCost apply(const Law& law, const LawInput& input, const Scales& scales) const;
  OpCost paged(const PagedAttention& work, const Bindings& bindings, const Scales& scales) const;
  double distance(const Law& law, const LawInput& input) const;
  OpCost message(const Work& work, std::int64_t ranks, const Scales& scales) const;
  Bytes from_memory(const LawInput& input) const;
  const Law& law_of(const Work& work) const { return laws_[index_[slot_of(work)]]; }

  std::string name_;
  HostParameters host_;
  Caches caches_;
  std::vector<Law> laws_;
  std::array<std::uint16_t, kNumSlots> index_{};  // into laws_, for each slot
};

}  // namespace orrery
