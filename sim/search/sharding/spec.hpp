// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// The axes of a logical mesh of two that cut one dimension of a tensor, as a set: none, S0, S1, or both, S01, of which
/// axis 0 varies slowest.
using MeshAxes = std::uint8_t;
constexpr MeshAxes kWhole = 0, kS0 = 1, kS1 = 2, kS01 = 3;

/// "R", "S0", "S1" or "S01".
std::string_view text_of(MeshAxes axes);

/// How a tensor lies on a logical mesh: the axes that cut each of its dimensions. An axis cuts one of them at most.
struct ShardingSpec {
  std::vector<MeshAxes> dims;

  /// All axes that cut it.
  MeshAxes used() const;
  bool is_legal() const;
  /// "[R,S01,R]".
  std::string text() const;
  bool operator==(const ShardingSpec&) const = default;
  auto operator<=>(const ShardingSpec&) const = default;
};

/// Throws UserError where the text is no legal spec.
ShardingSpec parse_spec(std::string_view text);

/// Sizes of the two axes of a logical mesh.
struct MeshSizes {
  std::int64_t first = 1, second = 1;

  std::int64_t ranks(MeshAxes axes) const { return (axes & kS0 ? first : 1) * (axes & kS1 ? second : 1); }
  std::int64_t size() const { return first * second; }
};

/// Whether each dimension is a multiple of the ranks that cut it.
bool divides(const ShardingSpec& spec, const std::vector<std::int64_t>& shape, const MeshSizes& mesh);

enum class ConversionKind : std::uint8_t { AllGather, AllToAll, Shard };

/// One step between two specs over one axis: of dimension `from` (all-gather, all-to-all) and to dimension `to`
/// (all-to-all, shard). Axes leave a dimension from the end and join it there, so that S01 never is S10.
struct ConversionStep {
  ConversionKind kind = ConversionKind::Shard;
  MeshAxes axis = kS0;
  std::size_t from = 0, to = 0;
  ShardingSpec result;
};

/// All that can be done to a tensor in one step: all-gathers first, then all-to-alls, then shards.
std::vector<ConversionStep> steps_from(const ShardingSpec& spec, const std::vector<std::int64_t>& shape,
                                       const MeshSizes& mesh);

/// How far one dimension is from another way of cutting it, as Colossal-Auto counts (arXiv 2302.02599): 20 for each
/// axis that is gathered, 5 for each that is cut, and 6 for each such step but the first.
int spec_distance(MeshAxes from, MeshAxes to);
/// The sum over dimensions.
int spec_distance(const ShardingSpec& from, const ShardingSpec& to);

/// Seconds, or any unit, of a step on a tensor of which a rank holds `bytes` before it.
using StepCost = std::function<double(const ConversionStep& step, double bytes)>;

struct Conversion {
  std::vector<ConversionStep> steps;
  double cost = 0;  // the sum of its steps
};

/// What is converted: elements of each dimension, bytes of the whole tensor.
struct ShardedTensor {
  std::vector<std::int64_t> shape;
  double bytes = 0;
};

/// The published search: the step that leaves the least distance, the first of equal ones, until none is left. It looks
/// at no sizes and no links. Nothing where 20 steps do not arrive. The published code adds the cost of the steps before
/// to each step of a path and then adds these up; here a path costs what its steps do.
std::optional<Conversion> greedy_conversion(const ShardingSpec& from, const ShardingSpec& to,
                                            const ShardedTensor& tensor, const MeshSizes& mesh, const StepCost& cost);

/// The cheapest of all ways: Dijkstra over specs, of equal ways one with the fewest steps. What is used here.
std::optional<Conversion> cheapest_conversion(const ShardingSpec& from, const ShardingSpec& to,
                                              const ShardedTensor& tensor, const MeshSizes& mesh, const StepCost& cost);

}  // namespace orrery
