// SPDX-License-Identifier: Apache-2.0
#include "hw_models/host_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr double kRangeSlack = 1.25;   // a size this much beyond the range still counts as inside
constexpr double kBorrowedBias = 0.5;  // of a law that was fitted for another kind
constexpr double kWidening = 0.15;     // added to the bias for each doubling beyond the range
constexpr double kLeastShare = 0.01;   // of memory bandwidth that is worth telling the engine
constexpr float kReceiverOnly = 0.5;   // of both ends of a message, one copies
constexpr std::uint16_t kNoLaw = 0xffff;

/// Integers are as wide and were measured as well.
bool is_f32(const Work& work) {
  return std::visit(
      [](const auto& w) {
        if constexpr (requires { w.dtype; })
          return w.dtype == DType::F32 || w.dtype == DType::I32;
        else if constexpr (requires { w.shape.dtype; })
          return w.shape.dtype == DType::F32;
        else
          return true;
      },
      work);
}

/// Arithmetic in double has half the lanes.
double lanes(const Work& work) {
  return std::visit(
      [](const auto& w) {
        if constexpr (requires { w.dtype; })
          return w.dtype == DType::F64 ? 2.0 : 1.0;
        else if constexpr (requires { w.shape.dtype; })
          return w.shape.dtype == DType::F64 ? 2.0 : 1.0;
        else
          return 1.0;
      },
      work);
}

double scale_of(const Feature& f, const LawForm& form, const Scales& scales) {
  switch (f.on) {
    case Spends::Overhead:
      return scales[form.math == Knob::LinkBandwidth ? Knob::LinkLatency : Knob::LaunchOverhead];
    case Spends::Math:
      return 1 / scales[form.math];
    case Spends::Memory:
      return 1 / scales[form.math == Knob::LinkBandwidth ? Knob::LinkBandwidth : Knob::MemoryBandwidth];
  }
  return 1;
}

}  // namespace

HostModel::HostModel(std::string name, HostParameters parameters)
    : name_{std::move(name)}, host_{std::move(parameters)}, caches_{host_.caches()} {
  index_.fill(kNoLaw);
  for (std::size_t slot = 0; slot < kNumSlots; ++slot) {
    const auto fit = host_.laws.find(slot_name(slot));
    if (fit == host_.laws.end()) continue;
    index_[slot] = static_cast<std::uint16_t>(laws_.size());
    laws_.push_back(make_law(fit->first, form_of(slot), fit->second));
  }
  borrow_missing();
}

HostModel::Law HostModel::make_law(const std::string& name, const LawForm& form, const LawFit& fit) {
  Law law{.form = &form,
          .deviation = fit.deviation,
          .bias = fit.bias,
          .memory = fit.memory,
          .floor = fit.floor.base(),
          .sensitivity = fit.sensitivity,
          .fitted = true,
          .name = name};
  for (std::size_t i = 0; i < form.features.size(); ++i)
    if (const auto c = fit.coefficients.find(std::string{form.features[i].name}); c != fit.coefficients.end())
      law.coefficients[i] = c->second.base();
  for (std::size_t i = 0; i < form.axes.size(); ++i)
    if (const auto r = fit.range.find(std::string{form.axes[i]}); r != fit.range.end())
      law.least[i] = r->second[0], law.most[i] = r->second[1];
  return law;
}

/// A law of the same form for a slot that has none: of the same kind if there is one, else of any.
const HostModel::Law* HostModel::nearest(std::size_t slot) const {
  const std::size_t first = slot / kMaxVariants * kMaxVariants;
  for (std::size_t s = first; s < first + kMaxVariants; ++s)
    if (index_[s] != kNoLaw && laws_[index_[s]].fitted && laws_[index_[s]].form == &form_of(slot))
      return &laws_[index_[s]];
  for (const Law& law : laws_)
    if (law.fitted && law.form == &form_of(slot)) return &law;
  return nullptr;
}

void HostModel::borrow_missing() {
  std::vector<std::pair<std::size_t, Law>> borrowed;
  for (std::size_t slot = 0; slot < kNumSlots; ++slot) {
    if (index_[slot] != kNoLaw || slot_name(slot).empty()) continue;
    const Law* from = nearest(slot);
    Law law = from ? *from : Law{.form = &form_of(slot)};
    law.fitted = false;
    law.bias = std::hypot(law.bias, kBorrowedBias);
    borrowed.emplace_back(slot, std::move(law));
  }
  for (auto& [slot, law] : borrowed) {
    index_[slot] = static_cast<std::uint16_t>(laws_.size());
    laws_.push_back(std::move(law));
  }
}

/// How many doublings the sizes of an op are outside of the fitted range; 0 inside.
double HostModel::distance(const Law& law, const LawInput& input) const {
  const AxisRow sizes = law.form->sizes(input);
  double most = 0;
  for (std::size_t i = 0; i < law.form->axes.size(); ++i) {
    const double above = sizes[i] / std::max(law.most[i] * kRangeSlack, 1e-12),
                 below = law.least[i] / kRangeSlack / std::max(sizes[i], 1e-12);
    most = std::max({most, std::log2(std::max(1.0, above)), std::log2(std::max(1.0, below))});
  }
  return most;
}

/// How many times as long a rank takes for what it does where so many ranks work.
double HostModel::slowdown(std::int64_t ranks) const {
  const std::int64_t cores = caches_.cores, working = std::clamp<std::int64_t>(ranks, 1, cores);
  const double others = cores > 1 ? double(working - 1) / double(cores - 1) : 0;
  return 1 / (1 - others * host_.beside) / (ranks > cores ? 1 - host_.turns : 1);
}

/// Time of one op on one thread: the law's coefficients times the features of its sizes. The interval is the fit's; it
/// widens with the distance from the fitted range, and for short ops. A rank loses a part of its time while others work
/// on the other cores, and another where more ranks than cores take turns. What threads of its own do at the same time
/// the demands tell the engine.
OpCost HostModel::apply(const Law& law, const LawInput& input, const Scales& scales) const {
  std::array<double, kMaxFeatures> scaled{};
  for (std::size_t i = 0; i < law.form->features.size(); ++i) {
    const Feature& f = law.form->features[i];
    scaled[i] = law.coefficients[i] * scale_of(f, *law.form, scales) * (f.on == Spends::Math ? lanes(input.work) : 1.0);
  }
  OpCost c;
  const HostLawTime alone = law_time(*law.form, scaled, input, caches_);
  const double seconds = alone.seconds * slowdown(input.bindings.ranks_of_node);
  const double outside = distance(law, input);
  c.duration = Seconds{seconds};
  c.deviation = static_cast<float>(seconds > 0 ? std::hypot(law.deviation, law.floor / seconds) : law.deviation);
  c.bias = static_cast<float>(std::hypot(law.bias, kWidening * outside));
  c.memory = static_cast<float>(std::hypot(law.memory * alone.beyond, cache_doubt(*law.form, scaled, input, caches_)));
  c.sensitivity = static_cast<float>(law.sensitivity.of(share_lost(input, caches_, CacheLevel::Second)));
  c.calibrated = law.fitted && outside == 0 && is_f32(input.work) && host_.provenance.status == FitStatus::Fitted;
  c.demand(Resource::CpuCores, 1);
  const double share =
      seconds > 0 ? from_memory(input) / c.duration / (host_.memory_bandwidth * scales[Knob::MemoryBandwidth]) : 0;
  if (share > kLeastShare) c.demand(Resource::DramBandwidth, std::min(1.0, share));
  return c;
}

/// The bytes of an op that no cache holds: what those around it have pushed out, or the step before.
Bytes HostModel::from_memory(const LawInput& input) const {
  const Amount a = amount(input.work, input.bindings);
  return share_lost(input, caches_, CacheLevel::Last) * (a.read + a.written);
}

OpCost HostModel::cost(const Work& work, const Bindings& bindings, const Scales& scales) const {
  if (std::holds_alternative<Alloc>(work) || std::holds_alternative<Free>(work)) return {};
  if (const auto* h = std::get_if<HostWork>(&work)) {
    OpCost c;
    c.duration = (h->flops / host_.peak + h->bytes / host_.memory_bandwidth) / scales[Knob::HostRate] + h->pause;
    c.bias = static_cast<float>(kBorrowedBias);
    c.calibrated = h->flops == Flops{0} && h->bytes == Bytes{0};
    if (h->pause == Seconds{0}) c.demand(Resource::CpuCores, 1);
    return c;
  }
  if (const auto* p = std::get_if<PagedAttention>(&work)) return paged(*p, bindings, scales);
  return apply(law_of(work), {work, bindings}, scales);
}

/// Sequences that decode and prompts one after another, each by the law of attention over even sequences.
OpCost HostModel::paged(const PagedAttention& work, const Bindings& bindings, const Scales& scales) const {
  OpCost sum;
  for (const AttentionShape& shape : work.parts(bindings)) {
    if (shape.batch == 0) continue;
    const Work part{AttentionForward{.shape = shape, .keep_lse = false}};
    const OpCost c = apply(law_of(part), {part, bindings}, scales);
    const Seconds before = sum.duration;
    sum = c.duration > before ? c : sum;  // demands and doubt of the longer one
    sum.duration = before + c.duration;
  }
  return sum;
}

LaunchCost HostModel::launch(const Work&, const Scales& scales) const {
  return {host_.dispatch * scales[Knob::LaunchOverhead], Seconds{0}, false};
}

std::string HostModel::extrapolation(const Work& work, const Bindings& bindings, const Scales&) const {
  if (std::holds_alternative<Alloc>(work) || std::holds_alternative<Free>(work) ||
      std::holds_alternative<HostWork>(work))
    return {};
  const LawInput input{work, bindings};
  const Law& law = law_of(work);
  const std::string kind = slot_name(slot_of(work));
  if (host_.provenance.status == FitStatus::Unfitted) return fmt::format("{} on {}: unfitted", kind, name_);
  if (!law.fitted) return fmt::format("{}: not measured, taken from {}", kind, law.name.empty() ? "nothing" : law.name);
  if (!is_f32(work)) return fmt::format("{}: fitted in f32 only", kind);
  const AxisRow sizes = law.form->sizes(input);
  for (std::size_t i = 0; i < law.form->axes.size(); ++i)
    if (sizes[i] > law.most[i] * kRangeSlack || sizes[i] * kRangeSlack < law.least[i])
      return fmt::format("{}: {} {} is outside of {} to {}", kind, law.form->axes[i], sizes[i], law.least[i],
                         law.most[i]);
  return {};
}

FlopsPerSecond HostModel::peak(DType type) const { return type == DType::F64 ? host_.peak / 2 : host_.peak; }

/// A message between threads: the law's time, and cores for what it copies and, less, for waking who sleeps.
OpCost HostModel::message(const Work& work, std::int64_t ranks, const Scales& scales) const {
  const Bindings none;
  const LawInput input{work, none, ranks};
  const Law& law = law_of(work);
  OpCost c = apply(law, input, scales);
  const FeatureRow row = features_of(*law.form, input, caches_);
  double waking = 0, all = 0;
  for (std::size_t i = 0; i < law.form->features.size(); ++i) {
    const double seconds = law.coefficients[i] * row[i];
    all += seconds;
    if (law.form->features[i].on == Spends::Overhead) waking += seconds;
  }
  if (all > 0) c.demands[0].share = static_cast<float>(1 - (1 - host_.message_cores) * waking / all);
  return c;
}

std::optional<OpCost> HostModel::collective(const Collective& work, std::int64_t ranks, const Scales& scales) const {
  return message(Work{work}, ranks, scales);
}

std::optional<OpCost> HostModel::transfer(Bytes bytes, const Scales& scales) const {
  OpCost c = message(Work{Send{.bytes = bytes}}, 2, scales);
  c.demands[0].share *= kReceiverOnly;
  return c;
}

}  // namespace orrery
