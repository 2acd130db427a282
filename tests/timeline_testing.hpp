// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string_view>

#include "sim/timeline/digest.hpp"

namespace orrery {

constexpr std::int64_t kMicrosecond = 1'000'000;  // in picoseconds

/// A plan of ops without operands: one class of ranks on one axis, one group over all of them.
class SmallPlan {
 public:
  explicit SmallPlan(std::int64_t ranks = 1) {
    plan.name = "small";
    plan.mesh.axes = {{"dp", ranks}};
    plan.groups = {{"dp", {0}, {}}};
    plan.classes = {{"all", {{0, ranks}}, 0, 0}};
  }

  OpId add(std::string_view name, const Work& work, Stream stream = Stream::Compute,
           std::initializer_list<OpId> deps = {}) {
    Op op;
    op.name = plan.names.intern(name);
    op.work = WorkId{plan.works.size()};
    plan.works.push_back(work);
    op.first_dep = static_cast<std::uint32_t>(plan.deps.size());
    op.num_deps = static_cast<std::uint16_t>(deps.size());
    plan.deps.insert(plan.deps.end(), deps);
    op.stream = stream;
    plan.ops.push_back(op);
    ++plan.classes.back().num_ops;
    return OpId{plan.ops.size() - 1};
  }

  /// Starts a second class; the first keeps the ranks before `first`.
  void begin_class(std::int64_t first) {
    const std::int64_t ranks = plan.classes.back().ranges[0].last;
    plan.classes.back().ranges[0].last = first;
    plan.classes.push_back({"rest", {{first, ranks}}, static_cast<std::uint32_t>(plan.ops.size()), 0});
  }

  Plan plan;
};

inline Work gemm() { return Gemm{.m = 8, .n = 8, .k = 8}; }
inline Work all_reduce() {
  return Collective{.kind = CollectiveKind::AllReduce, .group = GroupId{0}, .bytes = Bytes{1024}};
}

/// Records that an op ran, in microseconds.
inline void ran(Timeline& t, OpId op, std::size_t rank, std::int64_t start_us, std::int64_t end_us,
                std::uint32_t instance = 0, std::uint32_t part = 0) {
  t.spans.push_back({start_us * kMicrosecond, end_us * kMicrosecond, op, RankId{rank}, instance, part});
  t.makespan_ps = std::max(t.makespan_ps, end_us * kMicrosecond);
  if (t.instance_ends_ps.size() <= instance) t.instance_ends_ps.resize(instance + 1);
  t.instance_ends_ps[instance] = std::max(t.instance_ends_ps[instance], end_us * kMicrosecond);
  t.num_ranks = std::max(t.num_ranks, static_cast<std::int64_t>(rank) + 1);
}

}  // namespace orrery
