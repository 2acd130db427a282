// SPDX-License-Identifier: Apache-2.0
#include "sim/search/sharding/logical_mesh.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace orrery {
namespace {

constexpr double kSameBeta = 0.1;
constexpr double kLarge = double(1 << 30);
constexpr double kScale = 1e10;  // of beta, in the published solver
constexpr double kShardCost = 100;
constexpr std::array kSmall = {4.0, 8.0, 16.0, 32.0, 64.0};

double all_reduce(const CostModel& cost, const std::vector<RankId>& ranks, double bytes) {
  return cost
      .collective({.kind = CollectiveKind::AllReduce, .group = {}, .bytes = Bytes{bytes}, .dtype = DType::F32}, ranks)
      .duration.base();
}

double median_of_small(const CostModel& cost, const std::vector<RankId>& ranks) {
  std::vector<double> times;
  for (const double bytes : kSmall) times.push_back(all_reduce(cost, ranks, bytes));
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

/// Devices that some pairs join, by the first of each component.
std::vector<std::vector<std::size_t>> components(std::size_t devices,
                                                 const std::vector<std::pair<std::size_t, std::size_t>>& pairs) {
  std::vector<std::size_t> root(devices);
  std::iota(root.begin(), root.end(), 0);
  for (const auto& [a, b] : pairs) {
    const std::size_t low = std::min(root[a], root[b]), high = std::max(root[a], root[b]);
    std::replace(root.begin(), root.end(), high, low);
  }
  std::vector<std::vector<std::size_t>> out(devices);
  for (std::size_t d = 0; d < devices; ++d) out[root[d]].push_back(d);
  std::erase_if(out, [](const auto& c) { return c.empty(); });
  return out;
}

struct BetaGroup {
  double beta = 0;
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
};

/// Fastest first.
std::vector<BetaGroup> groups_of(const DevicePairs& pairs) {
  std::vector<BetaGroup> out;
  for (std::size_t a = 0; a < pairs.size(); ++a)
    for (std::size_t b = a + 1; b < pairs.size(); ++b) {
      const double beta = pairs[a][b].beta;
      const auto same = std::find_if(out.begin(), out.end(),
                                     [&](const BetaGroup& g) { return std::abs(g.beta - beta) < kSameBeta * g.beta; });
      BetaGroup& group = same == out.end() ? out.emplace_back(BetaGroup{beta, {}}) : *same;
      group.pairs.emplace_back(a, b);
    }
  std::stable_sort(out.begin(), out.end(), [](const BetaGroup& a, const BetaGroup& b) { return a.beta < b.beta; });
  return out;
}

LogicalMesh balanced(std::size_t devices) {
  std::size_t rows = 1;
  for (std::size_t r = 1; r * r <= devices; ++r)
    if (devices % r == 0) rows = r;
  LogicalMesh out;
  for (std::size_t r = 0; r < rows; ++r) {
    out.rows.emplace_back(devices / rows);
    std::iota(out.rows.back().begin(), out.rows.back().end(), r * (devices / rows));
  }
  return out;
}

}  // namespace

DevicePairs device_pairs(const CostModel& cost, std::size_t devices) {
  DevicePairs out(devices, std::vector<AlphaBeta>(devices));
  for (std::size_t a = 0; a < devices; ++a)
    for (std::size_t b = a + 1; b < devices; ++b) {
      const std::vector<RankId> pair{RankId{static_cast<std::uint32_t>(a)}, RankId{static_cast<std::uint32_t>(b)}};
      out[a][b] = out[b][a] = {median_of_small(cost, pair), all_reduce(cost, pair, kLarge) / kLarge};
    }
  return out;
}

MeshSizes LogicalMesh::sizes() const { return {std::ssize(rows), rows.empty() ? 1 : std::ssize(rows.front())}; }

std::vector<RankId> LogicalMesh::group(MeshAxes axes) const {
  std::vector<RankId> out;
  for (std::size_t r = 0; r < (axes & kS0 ? rows.size() : 1); ++r)
    for (std::size_t c = 0; c < (axes & kS1 ? rows[r].size() : 1); ++c)
      out.push_back(RankId{static_cast<std::uint32_t>(rows[r][c])});
  std::sort(out.begin(), out.end());
  return out;
}

bool LogicalMesh::is_in_order() const {
  std::size_t next = 0;
  for (const auto& row : rows)
    for (const std::size_t d : row)
      if (d != next++) return false;
  return true;
}

LogicalMesh logical_mesh(const DevicePairs& pairs) {
  const std::size_t n = pairs.size();
  for (const BetaGroup& g : groups_of(pairs)) {
    std::vector<std::vector<std::size_t>> rows = components(n, g.pairs);
    const bool reaches_all = std::all_of(rows.begin(), rows.end(), [](const auto& r) { return r.size() > 1; });
    if (!reaches_all) continue;
    const bool is_mesh = rows.size() > 1 && std::all_of(rows.begin(), rows.end(),
                                                        [&](const auto& r) { return r.size() == rows[0].size(); });
    return is_mesh ? LogicalMesh{std::move(rows)} : balanced(n);
  }
  return balanced(n);
}

AlphaBeta axis_cost(const CostModel& cost, const LogicalMesh& mesh, MeshAxes axis) {
  const std::vector<RankId> ranks = mesh.group(axis);
  const auto n = double(ranks.size());
  if (n < 2) return {};
  const double alpha = all_reduce(cost, ranks, kSmall.back());
  return {alpha, (all_reduce(cost, ranks, kLarge) - alpha) / kLarge * n / (2 * (n - 1))};
}

double published_cost(CollectiveKind kind, std::int64_t ranks, const AlphaBeta& axis, double bytes) {
  const auto n = double(ranks);
  const double moved = axis.beta * kScale * (n - 1) / n * bytes;
  switch (kind) {
    case CollectiveKind::AllGather:
      return axis.alpha + moved + 0.1;
    case CollectiveKind::AllReduce:
      return axis.alpha + 2 * moved + 0.01;
    case CollectiveKind::ReduceScatter:
      return axis.alpha + moved + 0.001;
    default:
      return axis.alpha + moved / 2 + 0.001;  // (N − 1)/N² · N/2
  }
}

StepCost published_steps(const MeshSizes& mesh, const AlphaBeta& first, const AlphaBeta& second) {
  return [=](const ConversionStep& s, double bytes) {
    if (s.kind == ConversionKind::Shard) return kShardCost;
    const CollectiveKind kind =
        s.kind == ConversionKind::AllGather ? CollectiveKind::AllGather : CollectiveKind::AllToAll;
    return published_cost(kind, mesh.ranks(s.axis), s.axis == kS0 ? first : second, bytes);
  };
}

}  // namespace orrery
