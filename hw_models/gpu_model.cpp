// SPDX-License-Identifier: Apache-2.0
#include "hw_models/gpu_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr double kSharedPart = 0.6, kMostShared = 0.03;  // of a fitted law's deviation: what all its ops share

/// The type whose matrix arithmetic a work uses; nothing for what has none.
std::optional<DType> product_type(const Work& work) {
  if (const auto* g = std::get_if<Gemm>(&work)) return g->arithmetic();
  if (const auto* g = std::get_if<GroupedGemm>(&work)) return g->arithmetic();
  if (const auto* a = std::get_if<AttentionForward>(&work)) return a->shape.dtype;
  if (const auto* a = std::get_if<AttentionBackward>(&work)) return a->shape.dtype;
  return {};
}

/// A product that casts its operands, as a product of what they become: laws are fitted to those. Nothing for others.
std::optional<Work> narrow_product(const Work& work) {
  const auto converted = [](const auto& product) -> std::optional<Work> {
    if (product.narrow == Narrow::None) return {};
    auto p = product;
    p.dtype = p.arithmetic();
    p.narrow = Narrow::None;
    p.input = InputCast::None;
    p.wide = false;
    return p;
  };
  if (const auto* g = std::get_if<Gemm>(&work)) return converted(*g);
  if (const auto* g = std::get_if<GroupedGemm>(&work)) return converted(*g);
  return {};
}

/// Whether a product finds its operands cast: those of gradients of weights were cast for the products that read them
/// before, in both orders of their numbers, and so was an input that is read cast.
bool finds_casts(const Work& work) {
  if (const auto* g = std::get_if<Gemm>(&work))
    return g->narrow != Narrow::None && (g->transpose_a || g->input == InputCast::Read);
  const auto* g = std::get_if<GroupedGemm>(&work);
  return g && g->narrow != Narrow::None && g->mode == GroupedMode::WeightGradient;
}

/// What passes through memory before the op itself, beside its law: rows that are cast before a grouped product.
/// Weights are cast once, behind the update, and a law of products in few bits has the cast of A in it.
Bytes casts_of(const Work& work) {
  const auto* g = std::get_if<GroupedGemm>(&work);
  if (!g || g->narrow == Narrow::None || g->weights != Quantised::None || finds_casts(work)) return {};
  const std::int64_t numbers = g->rows * (g->mode == GroupedMode::InputGradient ? g->n : g->k);
  return size_of(g->dtype, numbers) + size_narrow(g->narrow, numbers);
}

/// Matrix units load 16 B at a time: products in 16 or 8 bits whose inner or outer rows are cut otherwise run on what
/// is left (a head of 150 numbers).
bool is_misaligned(const Work& work) {
  const auto* g = std::get_if<Gemm>(&work);
  if (!g) return false;
  const int width = bits(g->arithmetic()) / 8;
  return width >= 1 && width <= 2 && (g->k * width % 16 != 0 || g->n * width % 16 != 0);
}

bool is_attention(const Work& work) {
  return std::holds_alternative<AttentionForward>(work) || std::holds_alternative<AttentionBackward>(work);
}

/// What makes one of the runtime's kernels faster.
Knob runtime_knob(const Work& work) {
  if (runs_on_host(work)) return Knob::HostRate;
  return is_attention(work) ? Knob::AttentionRate : Knob::MemoryBandwidth;
}

}  // namespace

GpuModel::GpuModel(std::string name, GpuParameters parameters, const std::vector<BorrowedLaws>& borrowed)
    : name_{std::move(name)}, gpu_{std::move(parameters)}, laws_(num_law_slots()) {
  for (std::size_t s = 0; s < laws_.size(); ++s) choose(static_cast<LawSlot>(s), borrowed);
  if (gpu_.runtime && gpu_.runtime->is_measured()) runtime_.emplace(*gpu_.runtime);
}

/// Its own law; else that of a device like it; else the same of a law that may stand in.
void GpuModel::choose(LawSlot slot, const std::vector<BorrowedLaws>& borrowed) {
  std::vector<LawSlot> slots = stand_ins(slot);
  slots.insert(slots.begin(), slot);
  Chosen& chosen = laws_[slot];
  const auto take = [&](const std::map<std::string, GpuLaw>& laws, LawSlot s, const std::string& device) {
    const auto found = laws.find(law_name(s));
    if (chosen.law || found == laws.end()) return;
    chosen = {std::make_shared<FittedLaw>(law_form(s), found->second),
              s == slot        ? device
              : device.empty() ? name_
                               : device,
              found->first};
  };
  for (const LawSlot s : slots) {
    take(gpu_.laws, s, {});
    for (const BorrowedLaws& b : borrowed) take(b.laws, s, b.device);
  }
}

const GpuModel::Chosen& GpuModel::law_of(const Work& work, const Bindings& bindings,
                                         const KernelChoice& kernels) const {
  const LawSlot slot = law_slot(work, bindings, double(gpu_.sm_count), kernels);
  if (!laws_[slot].law)
    throw UserError{fmt::format("device '{}' has no law for {}", name_, law_name(slot)),
                    "fit one with `orrery calibrate --from`, or name a device that has one under `like`"};
  return laws_[slot];
}

FlopsPerSecond GpuModel::peak(DType type) const {
  const auto it = gpu_.peak.find(std::string{orrery::name_of(type)});
  if (it != gpu_.peak.end()) return it->second;
  std::string known;
  for (const auto& [name, rate] : gpu_.peak) known += (known.empty() ? "" : ", ") + name;
  throw UserError{fmt::format("device '{}' has no matrix arithmetic in {}", name_, orrery::name_of(type)),
                  fmt::format("data types it has: {}", known)};
}

GpuFacts GpuModel::facts(const Work& work, const Bindings& bindings, const Scales& scales) const {
  GpuFacts f;
  f.sms = double(gpu_.sm_count);
  const bool portable = is_attention(work) && scales.kernels().portable_attention;
  const double rate =
      scales[is_attention(work) ? Knob::AttentionRate : Knob::GemmRate] * (portable ? gpu_.portable_attention : 1);
  if (const std::optional<DType> type = product_type(work))
    f.peak = peak(*type).base() * rate * (is_misaligned(work) ? gpu_.misaligned : 1.0);
  f.vector_rate = gpu_.vector_rate.base();
  f.bandwidth = gpu_.memory_bandwidth.base() * scales[Knob::MemoryBandwidth];
  f.launch = scales[Knob::LaunchOverhead];
  f.conversion = scales[Knob::Conversion];
  f.sustained = bindings.working_set > 0 ? gpu_.sustained_clock : 0;
  return f;
}

/// A fitted law knows its deviation, part of which its ops share; a borrowed one is off by what the file says besides.
void GpuModel::set_deviation(OpCost& c, const Work& work, const Chosen& chosen, double deviation) const {
  if (chosen.is_own() && deviation > 0) {
    const double shared = std::min(kSharedPart * deviation, kMostShared);
    c.bias = static_cast<float>(shared);
    c.deviation = static_cast<float>(std::sqrt(deviation * deviation - shared * shared));
    return;
  }
  const GpuUncertainty& u = gpu_.uncertainty;
  c.bias = static_cast<float>(is_attention(work) ? u.attention : product_type(work) ? u.gemm : u.memory);
  c.deviation = static_cast<float>(std::max(u.deviation, deviation));
}

/// Time of the host thread's own work, arithmetic and memory one after the other. Parameters: `host_*`.
OpCost GpuModel::host_work(const HostWork& work, const Scales& scales) const {
  OpCost c;
  c.duration =
      (work.flops / gpu_.host_rate + work.bytes / gpu_.host_memory_bandwidth) / scales[Knob::HostRate] + work.pause;
  if (work.experts) c.duration += Seconds{scales.kernels().host_experts};
  c.deviation = static_cast<float>(gpu_.uncertainty.deviation);
  c.bias = static_cast<float>(gpu_.uncertainty.memory);
  c.calibrated = false;
  c.demand(Resource::CpuCores, 1);
  return c;
}

/// Sequences that decode and prompts one after another, each by the law of attention over even sequences.
OpCost GpuModel::paged(const PagedAttention& work, const Bindings& bindings, const Scales& scales) const {
  OpCost sum;
  for (const AttentionShape& shape : work.parts(bindings)) {
    if (shape.batch == 0) continue;
    const OpCost c = cost(Work{AttentionForward{.shape = shape, .keep_lse = false}}, bindings, scales);
    const Seconds before = sum.duration;
    sum = c.duration > before ? c : sum;  // demands and doubt of the longer one
    sum.duration = before + c.duration;
  }
  return sum;
}

std::optional<Work> product_of_one(const Work& work, const KernelChoice& kernels) {
  const auto* g = std::get_if<GroupedGemm>(&work);
  if (!g || !kernels.experts_apart) return {};
  const std::int64_t rows = std::max<std::int64_t>(1, g->rows / std::max<std::int64_t>(1, g->groups));
  Gemm one{.m = rows,
           .n = g->n,
           .k = g->k,
           .accumulate = g->accumulate,
           .wide = g->wide,
           .narrow = g->narrow,
           .dtype = g->dtype,
           .weights = g->weights};
  if (g->mode == GroupedMode::InputGradient) std::swap(one.n, one.k);
  if (g->mode == GroupedMode::WeightGradient) {
    std::swap(one.m, one.k);
    one.transpose_a = true;
  }
  return Work{one};
}

const FittedLaw* GpuModel::runtime_product(const Work& work) const {
  const auto* g = std::get_if<Gemm>(&work);
  return g && g->narrow == Narrow::None ? runtime_->product(g->arithmetic()) : nullptr;
}

GpuFacts GpuModel::runtime_facts(const Work& work, const Bindings& bindings, const Scales& scales) const {
  GpuFacts about = facts(work, bindings, scales);
  if (about.sustained > 0) about.sustained = gpu_.runtime->sustained_clock;
  return about;
}

std::optional<OpCost> GpuModel::runtime_cost(const Work& work, const Bindings& bindings, const Scales& scales) const {
  OpCost c;
  double deviation = 0;
  if (const FittedLaw* law = runtime_product(work)) {
    const FittedLaw::Answer a = (*law)(work, bindings, runtime_facts(work, bindings, scales));
    c.duration = Seconds{a.seconds};
    deviation = a.deviation;
    c.demand(Resource::Sm, std::min(1.0, a.form.sm_share * a.form.math / a.form.seconds));
    c.demand(Resource::Hbm, std::min(1.0, a.form.memory / a.form.seconds));
  } else if (const auto a = runtime_->kernel(work, bindings)) {
    c.duration = Seconds{a->seconds} / scales[runtime_knob(work)];
    deviation = a->deviation;
    c.calibrated = a->is_own;
    if (!runs_on_host(work)) c.demand(is_attention(work) ? Resource::Sm : Resource::Hbm, 1);
  } else {
    return {};
  }
  if (!runs_on_host(work)) c.duration += gpu_.runtime->behind;
  c.bias = static_cast<float>(std::min(deviation, gpu_.runtime->bias));
  c.deviation = static_cast<float>(std::sqrt(std::max(0.0, deviation * deviation - double(c.bias) * double(c.bias))));
  return c;
}

/// The law's time; the backward pass of attention has 3·dk + 2·dv products for dk + dv, at another rate.
OpCost GpuModel::cost(const Work& work, const Bindings& bindings, const Scales& scales) const {
  OpCost c;
  if (std::holds_alternative<Alloc>(work) || std::holds_alternative<Free>(work)) return c;
  if (const auto* h = std::get_if<HostWork>(&work)) return host_work(*h, scales);
  if (runtime_ && scales.kernels().runtime)
    if (auto own = runtime_cost(work, bindings, scales)) return *own;
  if (const auto* p = std::get_if<PagedAttention>(&work)) return paged(*p, bindings, scales);
  if (const auto one = product_of_one(work, scales.kernels())) {
    c = cost(*one, bindings, scales);
    c.duration = c.duration * double(std::get<GroupedGemm>(work).groups);
    return c;
  }
  const std::optional<Work> product = narrow_product(work);
  const Work& multiplied = product ? *product : work;
  GpuFacts about = facts(multiplied, bindings, scales);
  if (finds_casts(work)) about.conversion = 0;
  const Chosen& chosen = law_of(multiplied, bindings, scales.kernels());
  const FittedLaw::Answer a = (*chosen.law)(multiplied, bindings, about);
  double seconds = a.seconds + casts_of(work) / (gpu_.memory_bandwidth * scales[Knob::MemoryBandwidth]) / Seconds{1};
  if (const auto* w = std::get_if<AttentionBackward>(&work)) {
    const double products = double(3 * w->shape.qk_dim + 2 * w->shape.v_dim) / double(w->shape.qk_dim + w->shape.v_dim);
    const double launch = std::min(a.form.launch, seconds);
    seconds = launch + (seconds - launch) * products / gpu_.attention_backward;
  }
  c.duration = Seconds{seconds};
  set_deviation(c, work, chosen, a.deviation);
  c.calibrated = chosen.is_own() && chosen.law->is_corrected();
  if (seconds > 0) {
    c.demand(Resource::Sm, std::min(1.0, a.form.sm_share * a.form.math / a.form.seconds));
    c.demand(Resource::Hbm, std::min(1.0, a.form.memory / a.form.seconds));
  }
  return c;
}

std::optional<OpCost> GpuModel::on_host(const Work& work, const Bindings& bindings, const Scales& scales) const {
  return runtime_ && scales.kernels().runtime ? runtime_cost(work, bindings, scales) : std::nullopt;
}

LaunchCost GpuModel::launch(const Work& work, const Scales& scales) const {
  if (std::holds_alternative<HostWork>(work)) return {Seconds{0}, Seconds{0}, false};
  if (runtime_ && scales.kernels().runtime) {
    const GpuRuntime& r = *gpu_.runtime;
    const double k = scales[Knob::LaunchOverhead];
    return {r.enqueue * k, r.start_latency * k, true, {}, r.behind};
  }
  const bool apart = product_of_one(work, scales.kernels()).has_value();
  const double k = scales[Knob::LaunchOverhead] * (apart ? double(std::get<GroupedGemm>(work).groups) : 1.0);
  const double program = scales[Knob::Enqueue];
  return {gpu_.enqueue * k * program, gpu_.start_latency * scales[Knob::LaunchOverhead], true,
          gpu_.enqueue * k * std::min(1.0, program)};
}

std::optional<std::string> GpuModel::runtime_extrapolation(const Work& work, const Bindings& bindings,
                                                           const Scales& scales) const {
  if (const FittedLaw* law = runtime_product(work)) {
    const auto axis = law->outside(work, bindings, runtime_facts(work, bindings, scales));
    return axis ? fmt::format("{} on {}: {} is outside of what the runtime's law was fitted to", kind_name(work), name_,
                              *axis)
                : std::string{};
  }
  const auto answer = runtime_->kernel(work, bindings);
  if (!answer) return {};
  return answer->is_own
             ? std::string{}
             : fmt::format("{} on {}: no law of its own, by the runtime's law {}", kind_name(work), name_, answer->law);
}

std::string GpuModel::extrapolation(const Work& asked, const Bindings& bindings, const Scales& scales) const {
  if (runtime_ && scales.kernels().runtime)
    if (auto reason = runtime_extrapolation(asked, bindings, scales)) return *reason;
  if (const auto* p = std::get_if<PagedAttention>(&asked)) {
    const auto parts = p->parts(bindings);
    const AttentionShape& shape = parts[0].batch > 0 ? parts[0] : parts[1];
    return shape.batch > 0 ? extrapolation(Work{AttentionForward{.shape = shape, .keep_lse = false}}, bindings, scales)
                           : "";
  }
  const std::optional<Work> product = narrow_product(asked);
  const Work& work = product ? *product : asked;
  if (std::holds_alternative<Alloc>(work) || std::holds_alternative<Free>(work)) return {};
  if (std::holds_alternative<HostWork>(work))
    return fmt::format("{} on {}: unfitted, from {}", kind_name(work), name_, gpu_.provenance.source);
  const Chosen& chosen = law_of(work, bindings);
  if (!chosen.is_own())
    return fmt::format("{} on {}: unfitted, by law {} of {}", kind_name(work), name_, chosen.name, chosen.device);
  if (!chosen.law->is_corrected())
    return fmt::format("{} on {}: unfitted, from {}", kind_name(work), name_, gpu_.provenance.source);
  const auto axis = chosen.law->outside(work, bindings, facts(work, bindings, {}));
  return axis ? fmt::format("{} on {}: {} is outside of what law {} was fitted to", kind_name(work), name_, *axis,
                            chosen.name)
              : std::string{};
}

}  // namespace orrery
