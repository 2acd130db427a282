// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/work.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

namespace orrery {
namespace {

template <std::size_t... I>
constexpr std::array<std::string_view, sizeof...(I)> kind_names(std::index_sequence<I...>) {
  return {std::variant_alternative_t<I, Work>::kName...};
}
constexpr auto kKindNames = kind_names(std::make_index_sequence<kNumKinds>{});

/// Mixes the bits of one field into a hash; splitmix64's finalizer.
struct HashVisitor {
  std::uint64_t h = 0;
  void mix(std::uint64_t x) {
    h ^= x + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h ^= h >> 27;
  }
  template <class T>
  void operator()(const char*, const T& field) {
    if constexpr (std::is_same_v<T, double>)
      mix_double(field);
    else if constexpr (std::is_same_v<T, Bytes> || std::is_same_v<T, Flops> || std::is_same_v<T, Seconds>)
      mix_double(field.base());
    else if constexpr (std::is_same_v<T, Extent>) {
      mix(static_cast<std::uint64_t>(field.base));
      mix(static_cast<std::uint64_t>(field.symbol));
    } else if constexpr (std::is_same_v<T, Peer>) {
      mix(field.axis);
      mix(static_cast<std::uint64_t>(field.offset));
    } else if constexpr (std::is_same_v<T, GroupId>)
      mix(field.value);
    else
      mix(static_cast<std::uint64_t>(field));
  }
  void mix_double(double v) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &v, sizeof bits);
    mix(bits);
  }
};

std::string_view word(NormKind k) {
  return k == NormKind::Layer ? "layer" : k == NormKind::Rms ? "rms" : "rms_one_plus";
}
std::string_view word(RouterScore s) { return s == RouterScore::Softmax ? "softmax" : "sigmoid"; }
std::string_view word(ReduceOp r) { return r == ReduceOp::Sum ? "sum" : "max"; }
std::string_view word(AcceptanceRule r) {
  return r == AcceptanceRule::Greedy ? "greedy" : r == AcceptanceRule::Rejection ? "rejection" : "typical";
}
std::string_view word(GroupedMode m) {
  constexpr std::string_view words[] = {"forward", "input_gradient", "weight_gradient"};
  return words[static_cast<int>(m)];
}
std::string_view word(ActivationKind k) {
  constexpr std::string_view words[] = {"relu", "gelu_tanh", "gelu_erf", "silu", "tanh", "quick_gelu", "sigmoid"};
  return words[static_cast<int>(k)];
}
std::string_view word(CovarianceKind k) {
  constexpr std::string_view words[] = {"matern52", "matern32", "squared_exponential"};
  return words[static_cast<int>(k)];
}
std::string_view word(Quantised s) {
  constexpr std::string_view words[] = {"none", "f8", "i8", "i4"};
  return words[static_cast<int>(s)];
}
std::string_view word(Narrow n) {
  constexpr std::string_view words[] = {"none", "eight_bits", "four_bits"};
  return words[static_cast<int>(n)];
}
std::string_view word(GradientOperand g) {
  constexpr std::string_view words[] = {"none", "a", "b"};
  return words[static_cast<int>(g)];
}
std::string_view word(InputCast c) {
  constexpr std::string_view words[] = {"none", "written_cast", "read_cast"};
  return words[static_cast<int>(c)];
}
std::string_view word(EvictionPolicy p) { return p == EvictionPolicy::Dataset ? "dataset" : "lfu"; }
std::string_view word(KeptMask m) {
  constexpr std::string_view words[] = {"none", "written", "read"};
  return words[static_cast<int>(m)];
}
std::string_view word(Symbol s) {
  constexpr std::string_view words[] = {
      "",        "context",     "step",        "position",     "decodes",      "decode_keys",
      "prompts", "prompt_rows", "prompt_keys", "prompt_pairs", "cache_misses", "cache_victims"};
  static_assert(std::size(words) == kNumSymbols);
  return words[static_cast<int>(s)];
}

template <class T>
std::string field_text(const T& v) {
  if constexpr (std::is_same_v<T, bool>)
    return v ? "yes" : "no";
  else if constexpr (std::is_same_v<T, Extent>)
    return v.is_bound() ? fmt::format("{}+{}", v.base, word(v.symbol)) : fmt::format("{}", v.base);
  else if constexpr (std::is_same_v<T, Bytes> || std::is_same_v<T, Flops> || std::is_same_v<T, Seconds>)
    return fmt::format("{}", v.base());
  else if constexpr (std::is_same_v<T, Peer>)
    return fmt::format("axis{}{:+}", v.axis, v.offset);
  else if constexpr (std::is_same_v<T, GroupId>)
    return fmt::format("{}", v.value);
  else if constexpr (std::is_same_v<T, DType> || std::is_same_v<T, Tier> || std::is_same_v<T, CollectiveKind>)
    return std::string{name_of(v)};
  else if constexpr (std::is_enum_v<T>)
    return std::string{word(v)};
  else
    return fmt::format("{}", v);
}

/// Appends " name=value" for each field that differs from a default-made work.
struct TextVisitor {
  std::string out;
  std::vector<std::string> defaults;
  bool collecting = true;
  std::size_t at = 0;
  template <class T>
  void operator()(const char* name, const T& field) {
    std::string text = field_text(field);
    if (collecting) {
      defaults.push_back(std::move(text));
      return;
    }
    if (text != defaults[at++]) out += fmt::format(" {}={}", name, text);
  }
};

/// Appends ".value" for each field that is no size.
struct VariantVisitor {
  std::string out;
  template <class T>
  void operator()(const char* name, const T& field) {
    if constexpr (std::is_same_v<T, bool>)
      out += field ? fmt::format(".{}", name) : "";
    else if constexpr (std::is_enum_v<T>)
      out += fmt::format(".{}", field_text(field));
  }
};

struct BoundVisitor {
  bool bound = false;
  template <class T>
  void operator()(const char*, const T& field) {
    if constexpr (std::is_same_v<T, Extent>) bound = bound || field.is_bound();
  }
};

}  // namespace

std::string_view name_of(OpClass c) {
  constexpr std::string_view names[] = {"gemm",           "attention", "norm",      "elementwise", "embedding",
                                        "loss",           "routing",   "optimizer", "copy",        "collective",
                                        "point_to_point", "host",      "other"};
  return names[static_cast<int>(c)];
}

std::string_view name_of(CollectiveKind k) {
  constexpr std::string_view names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                        "broadcast",  "reduce",     "shift",          "barrier"};
  return names[static_cast<int>(k)];
}

Amount amount(const Work& work, const Bindings& bindings) {
  return std::visit([&](const auto& w) { return w.amount(bindings); }, work);
}

OpClass class_of(const Work& work) {
  return std::visit([](const auto& w) { return std::decay_t<decltype(w)>::kClass; }, work);
}

std::string_view kind_name(const Work& work) { return kKindNames[work.index()]; }
std::string_view kind_name(std::size_t index) { return kKindNames[index]; }

std::string to_text(const Work& work) {
  return std::visit(
      [](const auto& w) {
        TextVisitor v;
        std::decay_t<decltype(w)>{}.visit(v);
        v.collecting = false;
        w.visit(v);
        return std::string{w.kName} + v.out;
      },
      work);
}

std::string variant_of(const Work& work) {
  return std::visit(
      [](const auto& w) {
        VariantVisitor v;
        w.visit(v);
        return std::string{w.kName} + v.out;
      },
      work);
}

std::size_t hash_of(const Work& work) {
  HashVisitor v;
  v.mix(work.index());
  std::visit([&](const auto& w) { w.visit(v); }, work);
  return v.h;
}

bool runs_on_host(const Work& work) {
  return std::visit(
      [](const auto& w) {
        if constexpr (requires { w.on_host; })
          return w.on_host;
        else
          return std::is_same_v<std::decay_t<decltype(w)>, HostWork>;
      },
      work);
}

bool is_bound(const Work& work) {
  BoundVisitor v;
  std::visit([&](const auto& w) { w.visit(v); }, work);
  return v.bound;
}

}  // namespace orrery
