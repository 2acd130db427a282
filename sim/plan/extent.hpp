// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace orrery {

struct Reuse;

/// Numbers that a template leaves open until a Program binds them: context length, step, seed …; of sequences in pages
/// how many decode and the keys they see together, how many are prompts, and of these the new rows, keys and visible
/// pairs together; rows that come into a cache of rows, and rows that leave it.
enum class Symbol : std::uint8_t {
  None,
  Context,
  Step,
  Position,
  Decodes,
  DecodeKeys,
  Prompts,
  PromptRows,
  PromptKeys,
  PromptPairs,
  CacheMisses,
  CacheVictims
};
constexpr int kNumSymbols = 12;

/// What other plans touched before an execution of a plan, and how often it has been executed since.
struct Interlude {
  double bytes = 0;             // that the plan itself does not touch, between two executions of it
  std::int32_t executions = 0;  // of the plan since, this one included; 0: nothing came between for long
  bool operator==(const Interlude&) const = default;
};

/// The bound values of one plan instance, and what a cost model may know of the rest of it. Symbols that a plan does
/// not use are ignored.
struct Bindings {
  std::int64_t values[kNumSymbols] = {};
  /// Bytes that one execution of the plan touches on a rank (see working_set): what passes through the caches between
  /// two uses of a weight. Filled by whoever executes; 0: unknown, the op stands alone.
  double working_set = 0;
  /// When the operands of the op at hand were used last; set by whoever prices an op of a plan, for the time of the
  /// call. Null: unknown.
  const Reuse* reuse = nullptr;
  /// What the caches have seen of other plans (see ExecutionHistory). Filled by whoever executes several plans in turn.
  Interlude before;
  /// Ranks that execute the plan on one node at the same time: they may share its cores, caches and memory.
  std::int64_t ranks_of_node = 1;
  std::int64_t& operator[](Symbol s) { return values[static_cast<int>(s)]; }
  std::int64_t operator[](Symbol s) const { return values[static_cast<int>(s)]; }
  bool operator==(const Bindings&) const = default;
};

/// A size that is a constant, or a constant plus a bound value.
struct Extent {
  std::int64_t base = 0;
  Symbol symbol = Symbol::None;

  Extent() = default;
  Extent(std::int64_t constant) : base{constant} {}  // NOLINT: a constant is an extent
  Extent(std::int64_t constant, Symbol s) : base{constant}, symbol{s} {}
  std::int64_t at(const Bindings& b) const { return symbol == Symbol::None ? base : base + b[symbol]; }
  bool is_bound() const { return symbol != Symbol::None; }
  bool operator==(const Extent&) const = default;
};

/// Of what there is `room` for as much as is bound, where something is: none below 0, all at most.
inline std::int64_t used_of(std::int64_t room, const Extent& used, const Bindings& b) {
  return used.is_bound() ? std::clamp<std::int64_t>(used.at(b), 0, room) : room;
}

}  // namespace orrery
