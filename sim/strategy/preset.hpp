// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "sim/strategy/strategy.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {

/// A strategy with a name of its own: what it fixes of a training step on a mesh, and what is left to say. Everything
/// that the name does not promise is a matter of `parallel`.
struct Preset {
  std::string_view name, summary;
  std::string_view splits;   // axes of which the mesh has at least one: "fsdp dp"
  std::string_view also;     // axes that it may have besides
  std::string_view mesh;     // what to say of the option `mesh`, with an example
  std::string_view options;  // names of the other options, of ParallelOptions and its DataOptions
  void (*fix)(ParallelOptions&) = nullptr;
};

/// Lowers with these options, or throws UserError that names the axes a preset knows.
std::unique_ptr<Strategy> make_preset(const Preset& preset, ParallelOptions options);

/// Whether a list of words, apart by blanks, has a word.
constexpr bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = words.find(' ') == std::string_view::npos ? words.size() : words.find(' ');
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(end == words.size() ? end : end + 1);
  }
  return false;
}

/// The options of a preset: the fields of ParallelOptions that it leaves open, those of DataOptions among them.
template <const Preset& P>
struct PresetOptions {
  ParallelOptions all;

  PresetOptions() {
    if (P.fix != nullptr) P.fix(all);
  }

  template <class V>
  void visit(V& v) {
    v.required("mesh", all.mesh, P.mesh);
    Open<V> open{v};
    all.visit(open);
  }

 private:
  /// Passes the open fields on.
  template <class V>
  struct Open {
    V& v;
    template <class T>
    void field(std::string_view name, T& value, std::string_view summary, Range range = {}) {
      if constexpr (std::is_same_v<T, DataOptions>)
        value.visit(*this);
      else if (has_word(P.options, name))
        v.field(name, value, summary, range);
    }
  };
};

/// The line of the registry for a preset.
template <const Preset& P>
constexpr StrategyEntry named() {
  return {P.name, P.summary,
          [](const Node& node) {
            PresetOptions<P> o;
            read_options(node, o);
            return make_preset(P, std::move(o.all));
          },
          [] { return describe_options<PresetOptions<P>>(); }};
}

}  // namespace orrery
