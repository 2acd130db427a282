// SPDX-License-Identifier: Apache-2.0
#include "hw_models/host_laws.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

namespace orrery {
namespace {

constexpr double kMegabyte = 1e6;
constexpr std::int64_t kFewRows = 8;     // up to so many rows a product streams its right operand
constexpr std::int64_t kFewQueries = 8;  // up to so many queries attention reads keys where they lie

/// The position of a kind in Work.
template <class K, std::size_t I = 0>
constexpr std::size_t index_of() {
  if constexpr (std::is_same_v<std::variant_alternative_t<I, Work>, K>)
    return I;
  else
    return index_of<K, I + 1>();
}

constexpr std::string_view kTransposes[] = {"nn", "nt", "tn", "tt", "few_nn", "few_nt", "few_tn", "few_tt"};
constexpr std::string_view kActivations[] = {"relu", "gelu_tanh", "gelu_erf", "silu", "tanh", "quick_gelu", "sigmoid"};
constexpr std::string_view kNorms[] = {"layer", "rms"};
constexpr std::string_view kAttention[] = {"tiled", "decode"};
constexpr std::string_view kSampling[] = {"greedy", "drawn"};
constexpr std::string_view kRotations[] = {"half", "interleaved"};
constexpr std::string_view kScalings[] = {"constant", "by_row"};
constexpr std::string_view kScores[] = {"softmax", "sigmoid"};
constexpr std::string_view kMessages[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                          "broadcast",  "reduce",     "shift",          "barrier"};

/// The names of a kind's variants; none when there is one only.
template <class K>
constexpr std::span<const std::string_view> variants() {
  if constexpr (std::is_same_v<K, Gemm>)
    return kTransposes;
  else if constexpr (requires(K k) { k.kind == ActivationKind::Silu; })
    return kActivations;
  else if constexpr (requires(K k) { k.kind == NormKind::Rms; })
    return kNorms;
  else if constexpr (std::is_same_v<K, AttentionForward>)
    return kAttention;
  else if constexpr (std::is_same_v<K, Sample>)
    return kSampling;
  else if constexpr (std::is_same_v<K, RotaryEmbedding>)
    return kRotations;
  else if constexpr (std::is_same_v<K, ScaleRows>)
    return kScalings;
  else if constexpr (requires(K k) { k.score; })
    return kScores;
  else if constexpr (std::is_same_v<K, Collective>)
    return kMessages;
  else
    return {};
}

std::size_t variant_of(const Gemm& g) {
  return (g.m <= kFewRows ? 4u : 0u) + (g.transpose_a ? 2u : 0u) + (g.transpose_b ? 1u : 0u);
}
std::size_t variant_of(const AttentionForward& a) { return a.shape.q <= kFewQueries ? 1 : 0; }
std::size_t variant_of(const Sample& s) { return s.temperature > 0 ? 1 : 0; }
std::size_t variant_of(const RotaryEmbedding& r) { return r.interleaved ? 1 : 0; }
std::size_t variant_of(const ScaleRows& s) { return s.by_row ? 1 : 0; }

template <class K>
std::size_t variant_of(const K& k) {
  if constexpr (requires { k.score; })
    return static_cast<std::size_t>(k.score);
  else if constexpr (requires { k.kind == NormKind::Rms; })
    return k.kind == NormKind::Layer ? 0 : 1;
  else if constexpr (requires { k.kind; })
    return static_cast<std::size_t>(k.kind);
  else
    return 0;
}

template <std::size_t... I>
std::span<const std::string_view> variants_at(std::size_t kind, std::index_sequence<I...>) {
  std::span<const std::string_view> found;
  ((I == kind ? void(found = variants<std::variant_alternative_t<I, Work>>()) : void()), ...);
  return found;
}

Bytes capacity(const Caches& caches, CacheLevel level) { return level == CacheLevel::Last ? caches.l3 : caches.l2; }

/// The part of what an op touches that has left a cache since, of what passes through it. What the execution before
/// touched meets what other plans did in between, and the executions behind it find less than they would in the end: in
/// a cache that drops lines at random, one that had to bring in the part m of what passes leaves 1 −
/// exp(−m·passed/cache) of it to be brought in by the next, until that is the part of executions which follow one
/// another for long.
double part_lost(const Touch& t, const LawInput& input, const Caches& caches, CacheLevel level) {
  const double foreign = level == CacheLevel::Last ? caches.foreign : 0;
  const Bytes passed = input.crowd * t.distance + Bytes{foreign * t.work.base()};
  const Interlude& before = input.bindings.before;
  const double settled = evicted(passed, caches, level);
  if (!t.carried || before.executions == 0) return settled;
  double part = evicted(passed + Bytes{input.crowd * before.bytes}, caches, level);
  for (std::int32_t i = 1; i < before.executions; ++i) part = -std::expm1(-part * (passed / capacity(caches, level)));
  return std::max(settled, part);
}

}  // namespace

CoreView core_view(const Bindings& bindings, const Caches& caches) {
  CoreView v{caches};
  const double ranks = double(std::max<std::int64_t>(1, bindings.ranks_of_node));
  const double cores = std::min(ranks, double(caches.cores));
  v.caches.l3 = caches.l3 / cores;
  v.crowd = ranks / cores;
  return v;
}

FeatureRow features_of(const LawForm& form, const LawInput& input, const Caches& caches) {
  if (input.bindings.ranks_of_node <= 1) return form.values(input, caches);
  const CoreView v = core_view(input.bindings, caches);
  return form.values({input.work, input.bindings, input.ranks, v.crowd}, v.caches);
}

HostLawTime law_time(const LawForm& form, std::span<const double> coefficients, const LawInput& input,
                     const Caches& caches) {
  const FeatureRow row = features_of(form, input, caches);
  double seconds = 0, beyond = 0;
  for (std::size_t i = 0; i < form.features.size(); ++i) {
    const double part = coefficients[i] * row[i];
    seconds += part;
    if (form.features[i].is_beyond_caches()) beyond += part;
  }
  return {seconds, seconds > 0 ? beyond / seconds : 0};
}

double cache_doubt(const LawForm& form, std::span<const double> coefficients, const LawInput& input,
                   const Caches& caches) {
  constexpr double kThird = 4.0 / 3;
  const auto with = [&](double of_it) {
    Caches other = caches;
    other.l3 = of_it * caches.l3;
    return law_time(form, coefficients, input, other).seconds;
  };
  const double less = with(kThird), more = with(1 / kThird);
  return less > 0 && more > 0 ? std::abs(std::log(more / less)) / 2 : 0;
}

Gemm even_groups(const GroupedGemm& g) {
  const std::int64_t rows = (g.rows + g.groups - 1) / std::max<std::int64_t>(1, g.groups);
  Gemm even{.batch = g.groups, .accumulate = g.accumulate, .dtype = g.dtype};
  switch (g.mode) {
    case GroupedMode::Forward:
      even.m = rows, even.n = g.n, even.k = g.k, even.transpose_b = g.transpose_b;
      break;
    case GroupedMode::InputGradient:
      even.m = rows, even.n = g.k, even.k = g.n, even.transpose_b = !g.transpose_b;
      break;
    case GroupedMode::WeightGradient:
      even.m = g.transpose_b ? g.n : g.k, even.n = g.transpose_b ? g.k : g.n, even.k = rows, even.transpose_a = true;
      break;
  }
  return even;
}

Bytes reuse_distance(const LawInput& input, Bytes size) {
  return std::max(size, Bytes{input.crowd * input.bindings.working_set});
}

Moved lost(const LawInput& input, const Caches& caches, CacheLevel level, const Moved& moved, const OperandRange& of) {
  if (input.bindings.reuse == nullptr) {
    const double part = evicted(reuse_distance(input, Bytes{kMegabyte * moved.all()}), caches, level);
    return {part * moved.read, part * moved.written};
  }
  Moved out;
  for (const Touch& t : input.bindings.reuse->touches) {
    if (t.operand < of.first || t.operand >= of.end) continue;
    const double mb = t.bytes.base() / kMegabyte * part_lost(t, input, caches, level);
    if (t.reads) out.read += mb;
    if (t.writes) out.written += mb;
  }
  return out;
}

double share_lost(const LawInput& input, const Caches& caches, CacheLevel level) {
  const Amount a = amount(input.work, input.bindings);
  const Moved moved{a.read.base() / kMegabyte, a.written.base() / kMegabyte};
  if (moved.all() <= 0) return 0;
  const CoreView v = core_view(input.bindings, caches);
  const LawInput seen{input.work, input.bindings, input.ranks, v.crowd};
  return std::min(1.0, lost(seen, v.caches, level, moved).all() / moved.all());
}

double spill(Bytes size, Bytes cache) {
  const double x = size / cache;
  return x * x / (1 + x * x);
}

double evicted(Bytes distance, const Caches& caches, CacheLevel level) {
  const double times = distance / capacity(caches, level);
  const double power = level == CacheLevel::Second ? 8 : times < 1 ? std::max(4.0, caches.steepness) : caches.steepness;
  return 1 / (1 + std::pow(times, -power));  // 0 of nothing, 1 of what has no number
}

std::size_t slot_of(const Work& work) {
  if (const auto* g = std::get_if<GroupedGemm>(&work))
    return index_of<Gemm>() * kMaxVariants + variant_of(even_groups(*g));
  const std::size_t variant = std::visit([](const auto& w) { return variant_of(w); }, work);
  return work.index() * kMaxVariants + variant;
}

std::string slot_name(std::size_t slot) {
  const std::size_t kind = slot / kMaxVariants, variant = slot % kMaxVariants;
  const auto names = variants_at(kind, std::make_index_sequence<kNumKinds>{});
  if (variant < names.size()) return fmt::format("{}.{}", kind_name(kind), names[variant]);
  return names.empty() && variant == 0 ? std::string{kind_name(kind)} : std::string{};
}

const LawForm& form_of(std::size_t slot) {
  const std::size_t kind = slot / kMaxVariants, variant = slot % kMaxVariants;
  switch (kind) {
    case index_of<Gemm>():
      return variant < 4 ? gemm_form() : few_rows_form();
    case index_of<AttentionForward>():
      return variant == 0 ? attention_form() : attention_decode_form();
    case index_of<AttentionBackward>():
      return attention_backward_form();
    case index_of<Collective>():
    case index_of<Send>():
    case index_of<Recv>():
      return message_form();
    case index_of<Cholesky>():
    case index_of<CholeskySolve>():
    case index_of<Covariance>():
    case index_of<DotInteractionForward>():
    case index_of<DotInteractionBackward>():
      return dense_form();
    default:
      return stream_form();
  }
}

}  // namespace orrery
