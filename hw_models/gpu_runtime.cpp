// SPDX-License-Identifier: Apache-2.0
#include "hw_models/gpu_runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr std::string_view kFeatureNames[] = {"call", "cached_mb", "mb", "gflop", "million_rows", "longest"};
static_assert(std::size(kFeatureNames) == kKernelFeatures);

constexpr double kCachedMb = 25;           // half of an H100's last cache: what one op leaves for the next
constexpr std::int64_t kFewestTiled = 16;  // of a sequence: below, keys are shared out over blocks
constexpr double kThreadOfHost = 1 << 19;  // elements: fewer are not worth another thread of an update on the host
constexpr double kBorrowed = 0.3;          // deviation of a law of another variant, beside its own

const AttentionShape* attention_of(const Work& work) {
  if (const auto* a = std::get_if<AttentionForward>(&work)) return &a->shape;
  if (const auto* a = std::get_if<AttentionBackward>(&work)) return &a->shape;
  return nullptr;
}

/// The field of a name; 0 where a work has none.
struct CountVisitor {
  std::string_view wanted;
  double count = 0;
  template <class T>
  void operator()(std::string_view name, const T& field) {
    if constexpr (std::is_same_v<T, std::int64_t>)
      if (name == wanted) count = double(field);
  }
};

double count_of(std::string_view field, const Work& work) {
  CountVisitor v{field};
  std::visit([&](const auto& w) { w.visit(v); }, work);
  return v.count;
}

double rows_of(const Work& work) {
  if (const AttentionShape* s = attention_of(work)) return double(s->batch * s->heads * s->q);
  return count_of("rows", work);
}

/// Of so many MB that a work reads and writes, those that cost less, or more, than the rest.
double first_mb(const Work& work, double mb) {
  if (!runs_on_host(work)) return std::min(mb, kCachedMb);
  return mb * std::min(1.0, kThreadOfHost / std::max(1.0, count_of("elements", work)));
}

}  // namespace

std::span<const std::string_view> kernel_features() { return kFeatureNames; }

KernelFeatures kernel_features_of(const Work& work, const Bindings& bindings) {
  const Amount a = amount(work, bindings);
  const double mb = (a.read + a.written).base() * 1e-6, first = first_mb(work, mb);
  const AttentionShape* s = attention_of(work);
  const double longest = s ? double(s->keys_read(bindings)) * double(s->qk_dim + s->v_dim) * 1e-6 : 0;
  return {1, first, mb - first, a.flops.base() * 1e-9, rows_of(work) * 1e-6, longest};
}

/// Which of the runtime's kernels it is: few queries share the keys out, tensor cores take tiles of plain heads of 16
/// bits, and one kernel takes the rest.
static std::string_view path_of(const AttentionShape& s) {
  if (s.q < kFewestTiled) return "few";
  const bool plain =
      !s.bias && s.mask_groups == 0 && !s.positions && s.documents == 0 && s.window == 0 && !s.contexts && s.cap == 0;
  const bool tiled = plain && bits(s.dtype) == 16 && s.qk_dim == s.v_dim && (s.qk_dim == 64 || s.qk_dim == 128);
  return tiled ? "tiles" : "rows";
}

std::string kernel_law_name(const Work& work) {
  if (const auto* g = std::get_if<Gemm>(&work); g && g->narrow == Narrow::None) return {};
  const OpClass c = class_of(work);
  if (c == OpClass::Collective || c == OpClass::PointToPoint || c == OpClass::Host || c == OpClass::Other) return {};
  if (const auto* copy = std::get_if<Copy>(&work); copy && (copy->from != Tier::Device || copy->to != Tier::Device))
    return {};
  const AttentionShape* s = attention_of(work);
  const std::string variant = variant_of(work);
  if (runs_on_host(work)) return "host_" + variant.substr(0, variant.rfind(".on_host"));
  if (!s) return variant;
  return fmt::format("{}.{}.{}.d{}{}", kind_name(work), path_of(*s), name_of(s->dtype), s->qk_dim,
                     variant.substr(variant.find('.')));
}

std::vector<std::string> kernel_law_names(const Work& work) {
  const std::string name = kernel_law_name(work);
  std::vector<std::string> names;
  if (name.empty()) return names;
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    names.push_back(name.substr(0, dot));
  names.push_back(name);
  return names;
}

RuntimeLaws::RuntimeLaws(const GpuRuntime& runtime) {
  for (const auto& [name, law] : runtime.kernels) {
    Law l{.name = name, .deviation = law.deviation};
    for (std::size_t i = 0; i < kKernelFeatures; ++i)
      if (const auto it = law.seconds.find(std::string{kFeatureNames[i]}); it != law.seconds.end())
        l.seconds[i] = it->second;
    kernels_.push_back(std::move(l));
  }
  for (const DType type : {DType::F32, DType::TF32, DType::BF16, DType::F16})
    if (const auto it = runtime.products.find(fmt::format("gemm.{}", name_of(type))); it != runtime.products.end())
      products_.emplace(type, FittedLaw{gemm_law(), it->second});
}

std::optional<RuntimeLaws::Answer> RuntimeLaws::kernel(const Work& work, const Bindings& bindings) const {
  const std::vector<std::string> names = kernel_law_names(work);
  const Law* best = nullptr;
  for (const Law& l : kernels_)
    if (std::find(names.begin(), names.end(), l.name) != names.end() && (!best || l.name.size() > best->name.size()))
      best = &l;
  if (!best) return {};
  const KernelFeatures f = kernel_features_of(work, bindings);
  Answer a{.deviation = best->deviation, .law = best->name, .is_own = best->name == names.back()};
  for (std::size_t i = 0; i < kKernelFeatures; ++i) a.seconds += best->seconds[i] * f[i];
  if (!a.is_own) a.deviation = std::hypot(a.deviation, kBorrowed);
  return a;
}

const FittedLaw* RuntimeLaws::product(DType type) const {
  const auto it = products_.find(type);
  return it == products_.end() ? nullptr : &it->second;
}

}  // namespace orrery
