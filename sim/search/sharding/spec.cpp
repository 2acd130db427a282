// SPDX-License-Identifier: Apache-2.0
#include "sim/search/sharding/spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr std::string_view kSpecNames[] = {"R", "S0", "S1", "S01"};
constexpr int kGatherPenalty = 20, kShardPenalty = 5, kStepPenalty = 6;
constexpr int kMostGreedySteps = 20;

/// The axis that leaves a dimension first.
MeshAxes last_axis(MeshAxes axes) { return axes & kS1 ? kS1 : kS0; }

/// Whether an axis may join a dimension behind those that cut it.
bool joins(MeshAxes axes, MeshAxes axis) { return axes == kWhole || last_axis(axes) < axis; }

/// Axes that cut a dimension from the slow end on, and that both have: they stay.
MeshAxes common_prefix(MeshAxes a, MeshAxes b) {
  if (a == b) return a;
  return a & b & kS0;  // S1 alone, or behind S0, goes before S0 comes
}

ConversionStep step_to(ConversionKind kind, const ShardingSpec& spec, MeshAxes axis, std::size_t from, std::size_t to) {
  ConversionStep s{kind, axis, from, to, spec};
  if (kind != ConversionKind::Shard) s.result.dims[from] = static_cast<MeshAxes>(s.result.dims[from] & ~axis);
  if (kind != ConversionKind::AllGather) s.result.dims[to] = static_cast<MeshAxes>(s.result.dims[to] | axis);
  return s;
}

double bytes_of_rank(const ShardingSpec& spec, const ShardedTensor& tensor, const MeshSizes& mesh) {
  return tensor.bytes / double(mesh.ranks(spec.used()));
}

}  // namespace

std::string_view text_of(MeshAxes axes) { return kSpecNames[axes]; }

MeshAxes ShardingSpec::used() const {
  MeshAxes all = kWhole;
  for (const MeshAxes d : dims) all = static_cast<MeshAxes>(all | d);
  return all;
}

bool ShardingSpec::is_legal() const {
  int cuts = 0;
  for (const MeshAxes d : dims) cuts += std::popcount(d);
  return cuts == std::popcount(used()) && used() <= kS01;
}

std::string ShardingSpec::text() const {
  std::vector<std::string_view> names;
  for (const MeshAxes d : dims) names.push_back(text_of(d));
  return fmt::format("[{}]", fmt::join(names, ","));
}

ShardingSpec parse_spec(std::string_view text) {
  ShardingSpec spec;
  std::size_t at = 1;
  const bool is_list = text.size() > 2 && text.front() == '[' && text.back() == ']';
  while (is_list && at < text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size() - 1);
    const auto* name = std::find(std::begin(kSpecNames), std::end(kSpecNames), text.substr(at, end - at));
    if (name == std::end(kSpecNames)) break;
    spec.dims.push_back(static_cast<MeshAxes>(name - std::begin(kSpecNames)));
    at = end + 1;
  }
  if (!is_list || at < text.size() || !spec.is_legal())
    throw UserError{fmt::format("`{}` is no sharding of a tensor", text),
                    "write R, S0, S1 or S01 for each dimension and each axis once: `[R,S01,R]` or `[S1,S0]`"};
  return spec;
}

bool divides(const ShardingSpec& spec, const std::vector<std::int64_t>& shape, const MeshSizes& mesh) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] % mesh.ranks(spec.dims[d]) != 0) return false;
  return true;
}

std::vector<ConversionStep> steps_from(const ShardingSpec& spec, const std::vector<std::int64_t>& shape,
                                       const MeshSizes& mesh) {
  std::vector<ConversionStep> gathers, exchanges, shards;
  for (std::size_t from = 0; from < spec.dims.size(); ++from) {
    if (spec.dims[from] == kWhole) continue;
    const MeshAxes axis = last_axis(spec.dims[from]);
    gathers.push_back(step_to(ConversionKind::AllGather, spec, axis, from, from));
    for (std::size_t to = 0; to < spec.dims.size(); ++to)
      if (to != from && joins(spec.dims[to], axis))
        exchanges.push_back(step_to(ConversionKind::AllToAll, spec, axis, from, to));
  }
  for (std::size_t to = 0; to < spec.dims.size(); ++to)
    for (const MeshAxes axis : {kS0, kS1})
      if ((spec.used() & axis) == 0 && joins(spec.dims[to], axis))
        shards.push_back(step_to(ConversionKind::Shard, spec, axis, to, to));
  std::vector<ConversionStep> all = std::move(gathers);
  for (auto* some : {&exchanges, &shards})
    for (ConversionStep& s : *some)
      if (divides(s.result, shape, mesh)) all.push_back(std::move(s));
  return all;
}

int spec_distance(MeshAxes from, MeshAxes to) {
  if (from == to) return 0;
  const MeshAxes stay = common_prefix(from, to);
  const int gathers = std::popcount(static_cast<MeshAxes>(from & ~stay));
  const int shards = std::popcount(static_cast<MeshAxes>(to & ~stay));
  return kGatherPenalty * gathers + kShardPenalty * shards + kStepPenalty * (gathers + shards - 1);
}

int spec_distance(const ShardingSpec& from, const ShardingSpec& to) {
  int sum = 0;
  for (std::size_t d = 0; d < from.dims.size(); ++d) sum += spec_distance(from.dims[d], to.dims[d]);
  return sum;
}

std::optional<Conversion> greedy_conversion(const ShardingSpec& from, const ShardingSpec& to,
                                            const ShardedTensor& tensor, const MeshSizes& mesh, const StepCost& cost) {
  Conversion out;
  ShardingSpec at = from;
  while (at != to) {
    if (std::ssize(out.steps) == kMostGreedySteps) return std::nullopt;
    const std::vector<ConversionStep> steps = steps_from(at, tensor.shape, mesh);
    const auto best = std::min_element(steps.begin(), steps.end(), [&](const auto& a, const auto& b) {
      return spec_distance(a.result, to) < spec_distance(b.result, to);
    });
    if (best == steps.end()) return std::nullopt;
    out.cost += cost(*best, bytes_of_rank(at, tensor, mesh));
    at = best->result;
    out.steps.push_back(*best);
  }
  return out;
}

std::optional<Conversion> cheapest_conversion(const ShardingSpec& from, const ShardingSpec& to,
                                              const ShardedTensor& tensor, const MeshSizes& mesh,
                                              const StepCost& cost) {
  using Way = std::tuple<double, std::size_t, ShardingSpec>;  // cost, steps, where it leads
  std::map<ShardingSpec, Conversion> known{{from, {}}};
  std::vector<Way> open{{0, 0, from}};
  std::map<ShardingSpec, bool> done;
  while (!open.empty()) {
    std::pop_heap(open.begin(), open.end(), std::greater<>{});
    const auto [so_far, length, at] = open.back();
    open.pop_back();
    if (std::exchange(done[at], true)) continue;
    if (at == to) return known.at(at);
    for (const ConversionStep& s : steps_from(at, tensor.shape, mesh)) {
      const double all = so_far + cost(s, bytes_of_rank(at, tensor, mesh));
      const auto it = known.find(s.result);
      if (it != known.end() && std::tuple{it->second.cost, it->second.steps.size()} <= std::tuple{all, length + 1})
        continue;
      Conversion way = known.at(at);
      way.steps.push_back(s);
      way.cost = all;
      known.insert_or_assign(s.result, std::move(way));
      open.emplace_back(all, length + 1, s.result);
      std::push_heap(open.begin(), open.end(), std::greater<>{});
    }
  }
  return std::nullopt;
}

}  // namespace orrery
