// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "sim/engine/engine.hpp"

namespace orrery {

/// Puts a plan together op by op, exactly as told: unlike PlanBuilder it derives and verifies nothing.
class RawPlan {
 public:
  explicit RawPlan(std::vector<Axis> axes = {}) {
    plan.name = "raw";
    plan.mesh.axes = std::move(axes);
  }

  RawPlan& begin_class(std::vector<CoordRange> ranges = {}) {
    RankClass c;
    c.name = "class " + std::to_string(plan.classes.size());
    c.ranges = std::move(ranges);
    c.first_op = static_cast<std::uint32_t>(plan.ops.size());
    plan.classes.push_back(std::move(c));
    return *this;
  }
  GroupId group(std::string name, std::vector<std::uint8_t> axes, std::vector<std::vector<std::int64_t>> only = {}) {
    plan.groups.push_back({std::move(name), std::move(axes), std::move(only)});
    return GroupId{plan.groups.size() - 1};
  }
  TensorId tensor(std::string_view name, std::int64_t bytes, bool persistent = false, Tier tier = Tier::Device) {
    plan.layouts.push_back(Layout::contiguous(Shape{bytes}));
    Tensor t;
    t.name = plan.names.intern(name);
    t.layout = LayoutId{plan.layouts.size() - 1};
    t.dtype = DType::U8;
    t.tier = tier;
    t.persistent = persistent;
    plan.tensors.push_back(t);
    return TensorId{plan.tensors.size() - 1};
  }
  OpId add(std::string_view name, const Work& work, Stream stream = Stream::Compute,
           std::initializer_list<OpId> deps = {}, std::initializer_list<Operand> operands = {}) {
    if (plan.classes.empty()) begin_class();
    std::size_t w = 0;
    while (w < plan.works.size() && !(plan.works[w] == work)) ++w;
    if (w == plan.works.size()) plan.works.push_back(work);
    Op op;
    op.name = plan.names.intern(name);
    op.work = WorkId{w};
    op.stream = stream;
    op.first_dep = static_cast<std::uint32_t>(plan.deps.size());
    op.num_deps = static_cast<std::uint16_t>(deps.size());
    plan.deps.insert(plan.deps.end(), deps.begin(), deps.end());
    op.first_operand = static_cast<std::uint32_t>(plan.operands.size());
    op.num_operands = static_cast<std::uint16_t>(operands.size());
    plan.operands.insert(plan.operands.end(), operands.begin(), operands.end());
    plan.ops.push_back(op);
    ++plan.classes.back().num_ops;
    return OpId{plan.ops.size() - 1};
  }

  Plan plan;
};

/// An operand that takes storage, and one that gives it back.
inline Operand taking(TensorId t) {
  Operand o{t, Access::Write};
  o.set_allocates(true);
  return o;
}
inline Operand giving(TensorId t) {
  Operand o{t, Access::Read};
  o.set_frees(true);
  return o;
}

/// Work that takes `m` nanoseconds on a TableCost.
inline Work lasting(std::int64_t nanoseconds, std::int64_t demand = 0) { return Gemm{.m = nanoseconds, .k = demand}; }
/// Work of the host thread that takes so many nanoseconds.
inline Work hosted(std::int64_t nanoseconds, bool waits = true) {
  return HostWork{.flops = Flops{static_cast<double>(nanoseconds)}, .waits = waits};
}

/// A cost model to calculate by hand: a GEMM takes m nanoseconds and asks for what `demands` lists under its k; a host
/// op takes `flops` nanoseconds; a message takes one nanosecond per byte, plus what `extra` adds for its communicator.
class TableCost : public CostModel {
 public:
  std::vector<std::vector<Demand>> demands{{}};
  std::vector<Demand> message_demands;
  LaunchCost launch_cost;
  std::function<double(RankId)> slowness = [](RankId) { return 1.0; };
  std::function<std::uint32_t(RankId)> kind = [](RankId) { return 0u; };

  OpCost cost(const Work& work, const Bindings& bindings, RankId rank) const override {
    OpCost c;
    if (const auto* g = std::get_if<Gemm>(&work)) {
      c.duration = Seconds{static_cast<double>(g->m) * 1e-9 * slowness(rank)};
      for (const Demand& d : demands.at(static_cast<std::size_t>(g->k))) c.demand(d.resource, d.share);
    } else if (const auto* h = std::get_if<HostWork>(&work)) {
      c.duration = Seconds{h->flops.base() * 1e-9};
    } else if (const auto* a = std::get_if<AttentionForward>(&work)) {
      c.duration = Seconds{static_cast<double>(a->shape.kv.at(bindings)) * 1e-9};
    }
    return c;
  }
  OpCost collective(const Collective& work, std::span<const RankId>) const override { return message(work.bytes); }
  OpCost transfer(Bytes bytes, RankId, RankId) const override { return message(bytes); }
  LaunchCost launch(const Work&, RankId) const override { return launch_cost; }
  std::uint32_t device_kind(RankId rank) const override { return kind(rank); }
  std::string extrapolation(const Work&, const Bindings&, RankId) const override { return {}; }

 private:
  OpCost message(Bytes bytes) const {
    OpCost c;
    c.duration = Seconds{bytes.base() * 1e-9};
    for (const Demand& d : message_demands) c.demand(d.resource, d.share);
    return c;
  }
};

/// Nodes of `per_node` ranks: CpuCores and Nic belong to the node, everything else to the rank. All capacities are 1.
class NodeResources : public ResourceMap {
 public:
  NodeResources(std::uint32_t ranks, std::uint32_t per_node = 1) : ranks_{ranks}, per_node_{per_node} {}
  std::uint32_t instance(Resource r, RankId rank) const override {
    return shared(r) ? rank.value / per_node_ : rank.value;
  }
  std::uint32_t count(Resource r) const override { return shared(r) ? (ranks_ + per_node_ - 1) / per_node_ : ranks_; }
  double capacity(Resource, std::uint32_t) const override { return 1; }

 private:
  static bool shared(Resource r) { return r == Resource::CpuCores || r == Resource::Nic; }
  std::uint32_t ranks_, per_node_;
};

constexpr std::int64_t kNs = 1000;  // picoseconds

/// The span of an op of a rank.
inline Span span_of(const Timeline& t, OpId op, RankId rank = RankId{0}, std::uint32_t instance = 0) {
  for (const Span& s : t.spans)
    if (s.op == op && s.rank == rank && s.instance == instance) return s;
  return {-1, -1, op, rank, instance, 0};
}

inline bool same_spans(const Spans& a, const Spans& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Span& x, const Span& y) {
    return x.start_ps == y.start_ps && x.end_ps == y.end_ps && x.op == y.op && x.rank == y.rank &&
           x.instance == y.instance;
  });
}

/// A legal plan of one class: `ops` ops on random streams, of random length up to 1 us, after up to three random
/// earlier ops. `kinds` is how many rows of demands there are to choose from.
inline Plan random_plan(std::uint32_t seed, int ops, std::int64_t kinds) {
  std::mt19937 random{seed};
  const auto up_to = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(n));
  };
  RawPlan raw;
  for (int i = 0; i < ops; ++i) {
    const OpId op = raw.add("op", lasting(up_to(1000), up_to(kinds)), static_cast<Stream>(up_to(kNumStreams)));
    for (std::int64_t d = i > 0 ? up_to(4) : 0; d > 0; --d) {
      raw.plan.deps.push_back(OpId{static_cast<std::size_t>(up_to(i))});
      ++raw.plan.ops[op.index()].num_deps;
    }
  }
  return raw.plan;
}

/// One collective of all ranks, rooted at rank 1 where it has a root.
inline Plan one_collective(std::int64_t ranks, CollectiveKind kind, Bytes bytes) {
  RawPlan p{{{"r", ranks}}};
  const GroupId all = p.group("all", {0});
  p.begin_class({{0, ranks}});
  p.add("all", Collective{.kind = kind, .group = all, .root = 1, .bytes = bytes}, Stream::Comm);
  return p.plan;
}

}  // namespace orrery
