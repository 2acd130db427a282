// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace orrery {

/// What `--what-if` and `orrery sensitivity` may scale. A rate of 2 is twice as fast, a latency of 2 twice as long.
enum class Knob : std::uint8_t {
  GemmRate,
  AttentionRate,
  MemoryBandwidth,
  LaunchOverhead,
  Enqueue,
  LinkBandwidth,
  LinkLatency,
  NicBandwidth,
  NicLatency,
  NetworkBandwidth,
  HostLinkBandwidth,
  HostRate,
  DiskBandwidth,
  Conversion
};
constexpr int kNumKnobs = 14;

struct KnobInfo {
  std::string_view name;  // "link.bandwidth"
  std::string_view summary;
};
/// In the order of Knob.
std::span<const KnobInfo> knobs();

/// Which of several kernels for the same work a program takes, and what its host does beside them.
struct KernelChoice {
  static constexpr std::int64_t kSharedHeads = 32;
  std::int64_t shared_heads = kSharedHeads;  // decoding: most query heads over one of keys that a kernel takes together
  bool own_all_reduce = false;      // in a node, where it is faster than NCCL's: ranks read each other's memory
  bool portable_attention = false;  // kernels for all devices, as FlashAttention-2, which leave out what is new in some
  bool experts_apart = false;       // a product over experts as one of dense products for each
  bool runtime = false;             // Orrery's own runtime: laws of its kernels where a device has them
  double host_experts = 0;          // seconds of the host in a layer of experts that it waits in
};

/// Factors by knob, all 1 at first, and the kernels that are chosen.
class Scales {
 public:
  double operator[](Knob k) const { return factors_[static_cast<std::size_t>(k)]; }
  void scale(Knob k, double factor) { factors_[static_cast<std::size_t>(k)] *= factor; }
  /// By name. Throws UserError naming the parameters there are, or when the factor is not positive.
  void scale(std::string_view name, double factor);
  const KernelChoice& kernels() const { return kernels_; }
  void choose(const KernelChoice& kernels) { kernels_ = kernels; }

 private:
  KernelChoice kernels_;
  std::array<double, kNumKnobs> factors_ = filled();
  static constexpr std::array<double, kNumKnobs> filled() {
    std::array<double, kNumKnobs> ones{};
    for (double& f : ones) f = 1.0;
    return ones;
  }
};

}  // namespace orrery
