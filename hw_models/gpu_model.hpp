// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hw_models/gpu_parameters.hpp"

namespace orrery {

/// Laws of another device that stand in where one has none of its own.
struct BorrowedLaws {
  std::string device;
  std::map<std::string, GpuLaw> laws;
};

/// A GPU by the laws of gpu_laws.hpp: its own where they were fitted, else those of devices like it, on its own data
/// sheet.
/// The product of one of the experts of a product over them, where a program computes them apart; nothing for other
/// works and programs.
std::optional<Work> product_of_one(const Work& work, const KernelChoice& kernels);

class GpuModel final : public DeviceModel {
 public:
  GpuModel(std::string name, GpuParameters parameters, const std::vector<BorrowedLaws>& borrowed = {});

  std::string_view name() const override { return name_; }
  const GpuParameters& parameters() const { return gpu_; }
  const Provenance& provenance() const override { return gpu_.provenance; }
  OpCost cost(const Work& work, const Bindings& bindings, const Scales& scales) const override;
  /// What laws are told of an op.
  GpuFacts facts(const Work& work, const Bindings& bindings, const Scales& scales) const;
  std::optional<OpCost> on_host(const Work& work, const Bindings& bindings, const Scales& scales) const override;
  LaunchCost launch(const Work& work, const Scales& scales) const override;
  std::string extrapolation(const Work& work, const Bindings& bindings, const Scales& scales) const override;
  const CommunicationParameters& communication() const override { return gpu_.communication; }
  std::optional<Bytes> memory() const override { return gpu_.memory; }
  FlopsPerSecond peak(DType type) const override;
  std::optional<OpCost> collective(const Collective&, std::int64_t, const Scales&) const override { return {}; }
  std::optional<OpCost> transfer(Bytes, const Scales&) const override { return {}; }

 private:
  /// The law that a slot uses, and whose it is: empty for its own.
  struct Chosen {
    std::shared_ptr<const FittedLaw> law;  // slots may share one
    std::string device, name;
    bool is_own() const { return device.empty(); }
  };
  void choose(LawSlot slot, const std::vector<BorrowedLaws>& borrowed);
  const Chosen& law_of(const Work& work, const Bindings& bindings, const KernelChoice& kernels = {}) const;
  void set_deviation(OpCost& cost, const Work& work, const Chosen& chosen, double deviation) const;
  OpCost paged(const PagedAttention& work, const Bindings& bindings, const Scales& scales) const;
  OpCost host_work(const HostWork& work, const Scales& scales) const;

  /// By the laws of Orrery's own runtime; nothing where they have none for the op.
  std::optional<OpCost> runtime_cost(const Work& work, const Bindings& bindings, const Scales& scales) const;
  /// The law of a product; null for other works, and where none was fitted.
  const FittedLaw* runtime_product(const Work& work) const;
  GpuFacts runtime_facts(const Work& work, const Bindings& bindings, const Scales& scales) const;
  /// As `extrapolation`, of those laws.
  std::optional<std::string> runtime_extrapolation(const Work& work, const Bindings& bindings,
                                                   const Scales& scales) const;

  std::string name_;
  GpuParameters gpu_;
  std::optional<RuntimeLaws> runtime_;
  std::vector<Chosen> laws_;  // by slot
};

}  // namespace orrery
