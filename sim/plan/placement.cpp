// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/placement.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace orrery {

Position position(const Mesh& mesh, std::span<const std::int8_t> axes, std::span<const std::int64_t> coordinates) {
  Position p;
  for (const std::int8_t a : axes) {
    if (a < 0) continue;
    const std::int64_t size = mesh.axes[static_cast<std::size_t>(a)].size;
    p.at = p.at * size + coordinates[static_cast<std::size_t>(a)];
    p.of *= size;
  }
  return p;
}

std::int64_t ranks_over(const Mesh& mesh, std::span<const std::int8_t> axes) {
  std::int64_t n = 1;
  for (const std::int8_t a : axes)
    if (a >= 0) n *= mesh.axes[static_cast<std::size_t>(a)].size;
  return n;
}

Shape local_shape(const Mesh& mesh, const Shard& shard) {
  Shape out = shard.global;
  for (std::size_t d = 0; d < static_cast<std::size_t>(out.rank); ++d) {
    const std::int64_t ranks = ranks_over(mesh, shard.axes[d]);
    std::int64_t sum = 0;
    for (const std::int64_t n : shard.parts[d]) sum += (n + ranks - 1) / ranks;
    out.sizes[d] = sum > 0 ? sum : (out.sizes[d] + ranks - 1) / ranks;
  }
  return out;
}

namespace {

/// The runs of one dimension: every part of it, split on its own.
std::vector<ElementRun> dimension_runs(const Shard& shard, int dim, Position p) {
  const auto d = static_cast<std::size_t>(dim);
  std::vector<std::int64_t> parts;
  for (const std::int64_t n : shard.parts[d])
    if (n > 0) parts.push_back(n);
  if (parts.empty()) parts.push_back(shard.global[dim]);
  std::vector<ElementRun> out;
  std::int64_t global = 0, local = 0;
  for (const std::int64_t n : parts) {
    const std::int64_t each = (n + p.of - 1) / p.of, first = std::min(p.at * each, n);
    const std::int64_t count = std::min(each, n - first);
    if (count > 0) out.push_back({global + first, local, count});
    global += n;
    local += each;
  }
  return out;
}

/// Joins runs that touch in both.
void append(std::vector<ElementRun>& runs, const ElementRun& r) {
  if (!runs.empty() && runs.back().global + runs.back().count == r.global &&
      runs.back().local + runs.back().count == r.local)
    runs.back().count += r.count;
  else
    runs.push_back(r);
}

std::vector<ElementRun> shard_runs(const Mesh& mesh, const Shard& shard, std::span<const std::int64_t> coordinates) {
  const Shape held = local_shape(mesh, shard);
  std::vector<ElementRun> runs{{0, 0, 1}};
  for (int d = 0; d < shard.global.rank; ++d) {
    const Position p = position(mesh, shard.axes[static_cast<std::size_t>(d)], coordinates);
    const auto inner = dimension_runs(shard, d, p);
    const std::int64_t size = shard.global[d], local = held[d];
    std::vector<ElementRun> next;
    for (const ElementRun& outer : runs)
      for (std::int64_t i = 0; i < outer.count; ++i)
        for (const ElementRun& r : inner)
          append(next, {(outer.global + i) * size + r.global, (outer.local + i) * local + r.local, r.count});
    runs = std::move(next);
  }
  return runs;
}

void check_inside(const ElementRun& r, std::size_t parameter, std::size_t tensor) {
  if (r.global + r.count > static_cast<std::int64_t>(parameter) ||
      r.local + r.count > static_cast<std::int64_t>(tensor))
    bug("a placement reaches beyond its tensor");
}

}  // namespace

std::vector<ElementRun> runs_of(const Plan& plan, const Stored& stored, std::span<const std::int64_t> coordinates) {
  if (stored.tensor.is_none()) return {};
  if (position(plan.mesh, stored.held_axes, coordinates).at != stored.held_at) return {};
  std::vector<ElementRun> runs = shard_runs(plan.mesh, stored.shard, coordinates);
  if (stored.flat_axes[0] < 0) return runs;
  const Position p = position(plan.mesh, stored.flat_axes, coordinates);
  const std::int64_t held = plan.shape(stored.tensor).elements(), each = stored.in_place ? held / p.of : held;
  const std::int64_t first = p.at * each, base = stored.in_place ? 0 : first;
  std::vector<ElementRun> cut;
  for (const ElementRun& r : runs) {
    const std::int64_t begin = std::max(stored.flat_first + r.local, first);
    const std::int64_t end = std::min(stored.flat_first + r.local + r.count, first + each);
    if (begin < end) cut.push_back({r.global + begin - stored.flat_first - r.local, begin - base, end - begin});
  }
  return cut;
}

void scatter(std::span<const ElementRun> runs, std::span<const double> parameter, std::span<double> tensor) {
  for (const ElementRun& r : runs) {
    check_inside(r, parameter.size(), tensor.size());
    std::copy_n(parameter.begin() + r.global, r.count, tensor.begin() + r.local);
  }
}

void gather(std::span<const ElementRun> runs, std::span<const double> tensor, std::span<double> parameter) {
  for (const ElementRun& r : runs) {
    check_inside(r, parameter.size(), tensor.size());
    std::copy_n(tensor.begin() + r.local, r.count, parameter.begin() + r.global);
  }
}

}  // namespace orrery
