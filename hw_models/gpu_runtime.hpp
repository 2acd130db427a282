// SPDX-License-Identifier: Apache-2.0
// How long Orrery's own kernels take on a GPU: laws that are linear in a few features, one for each kind of op and all
// of it that is no size. `orrery node-report` and `orrery calibrate` fit them to measurements of a node.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hw_models/device_model.hpp"
#include "hw_models/gpu_laws.hpp"

namespace orrery {

/// What the time of a kernel grows with; a coefficient is the seconds that one unit takes.
constexpr std::size_t kKernelFeatures = 6;
using KernelFeatures = std::array<double, kKernelFeatures>;
/// "call", "cached_mb", "mb", "gflop", "million_rows", "longest".
std::span<const std::string_view> kernel_features();
/// Of one op: 1; MB that it reads and writes, up to half of the last cache (of an update on the host: up to what one of
/// its threads takes) and beyond; GFLOP; 10⁶ rows (of attention: queries of all heads); and for attention what one
/// block goes through by itself, 10⁶ numbers of keys and values.
KernelFeatures kernel_features_of(const Work& work, const Bindings& bindings);

/// Which law an op has: "norm.rms.bf16.weighted"; of attention first the kernel, type and size of a head:
/// "attention.tiles.bf16.d128…"; of an update by the cores of the node "host_adamw.master.bf16.bf16.f32". Empty: the
/// time of such an op is no kernel's (a copy between tiers, say), or a product's, which have laws of another form.
std::string kernel_law_name(const Work& work);
/// That and what of it ends before a dot, the shortest first: laws of more than one variant, which stand in for those
/// that were measured too seldom.
std::vector<std::string> kernel_law_names(const Work& work);

struct KernelLaw {
  std::map<std::string, double> seconds;  // by feature; those that are left out count nothing
  double deviation = 0.1;                 // relative, of one op
  std::int64_t points = 0;
  double median_error = 0, p90_error = 0;  // of points whose plan the fit did not see

  template <class V>
  void visit(V& v) {
    v.required("seconds", seconds, "seconds per unit of each feature", at_least(0));
    v.field("deviation", deviation, "relative standard deviation of one op", at_least(0));
    v.field("points", points, "measurements fitted");
    v.field("median_error", median_error, "of points whose plan the fit did not see");
    v.field("p90_error", p90_error, "of points whose plan the fit did not see");
  }
};

/// The runtime on a device, as its file has it.
struct GpuRuntime {
  Provenance provenance;
  Seconds enqueue, start_latency, behind;
  double sustained_clock = 1, bias = 0.02;
  std::map<std::string, GpuLaw> products;
  std::map<std::string, KernelLaw> kernels;

  bool is_measured() const { return !kernels.empty(); }

  template <class V>
  void visit(V& v) {
    v.required("provenance", provenance, "where the numbers come from");
    v.required("enqueue", enqueue, "time of the host thread per op, with the events that measure it",
               at_least(Seconds{0}));
    v.field("start_latency", start_latency, "from the end of the enqueue to the start on an idle stream",
            at_least(Seconds{0}));
    v.field("behind", behind, "for which a stream stands still behind an op", at_least(Seconds{0}));
    v.field("sustained_clock", sustained_clock, "rate of products in a plan over that of products that stand alone",
            Range{0, 2, true});
    v.field("bias", bias, "relative standard deviation that all ops of a step share", at_least(0));
    v.field("products", products, "laws of cuBLASLt's products by type, as `laws`");
    v.field("kernels", kernels, "laws of the runtime's own kernels");
  }
};

/// The same, ready to be asked.
class RuntimeLaws {
 public:
  explicit RuntimeLaws(const GpuRuntime& runtime);

  struct Answer {
    double seconds = 0, deviation = 0;
    std::string_view law;
    bool is_own = true;  // false: by a law of more variants of the kind
  };
  /// Nothing where no op of its kind was measured.
  std::optional<Answer> kernel(const Work& work, const Bindings& bindings) const;
  /// The law of products in a type; null where none was fitted.
  const FittedLaw* product(DType type) const;

 private:
  struct Law {
    std::string name;
    KernelFeatures seconds{};
    double deviation = 0;
  };
  std::vector<Law> kernels_;  // by name
  std::map<DType, FittedLaw> products_;
};

}  // namespace orrery
