// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/engine.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/pages.hpp"
#include "sim/engine/execution.hpp"

namespace orrery {
namespace {

/// `more` spans to be filled in, without giving up doubling.
void add_room(Spans& v, std::size_t more) {
  if (v.capacity() - v.size() < more) v.reserve(std::max(v.size() + more, v.size() * 2));
  v.resize(v.size() + more);
  take_pages(v.data() + v.size() - more, more * sizeof(Span));
}

/// Of all simulated ranks.
std::size_t num_ops(const Plan& plan, const Fleet& fleet) {
  std::size_t n = 0;
  for (std::uint32_t s = 0; s < fleet.size(); ++s) n += plan.classes[fleet.class_of(s)].num_ops;
  return n;
}

void check_network(const EngineOptions& options) {
  if (!options.network) return;
  if (options.expansion == Expansion::Folded)
    throw UserError{"network: flow cannot carry messages of folded ranks: one rank of a class would send for all",
                    "simulate every rank, or take network: closed_form"};
  if (options.collectives == Collectives::ClosedForm)
    throw UserError{"network: flow cannot carry collectives in closed form: they have no messages",
                    "take collectives step by step, or network: closed_form"};
}

/// Copies between devices use links too, but send no messages.
void check_copies(const Plan& plan, const Bindings& bindings, const CostModel& cost) {
  for (const Work& work : plan.works) {
    if (!std::holds_alternative<Copy>(work)) continue;
    const OpCost priced = cost.cost(work, bindings, RankId{0});
    for (const Demand& d : priced.used())
      if (d.resource == Resource::Link || d.resource == Resource::Nic)
        throw UserError{"network: flow does not carry copies from device to device, such as " + to_text(work),
                        "take network: closed_form"};
  }
}

/// Says of how many ranks each simulated one stands, where that is not its class.
void tell_standing(const Fleet& fleet, const Plan& plan, std::vector<Standing>& standing) {
  if (!fleet.is_folded() || fleet.size() <= plan.classes.size() || !standing.empty()) return;
  for (std::uint32_t s = 0; s < fleet.size(); ++s) standing.push_back({fleet.rank(s), fleet.stands_for(s)});
  std::sort(standing.begin(), standing.end(), [](const Standing& a, const Standing& b) { return a.rank < b.rank; });
}

/// Adds what the ranks of an execution have copied between tiers: every copy of a plan happens once.
void count_copies(const Fleet& fleet, const Plan& plan, const Bindings& bindings, std::vector<Transfers>& all) {
  std::vector<std::int64_t> bytes(plan.works.size(), -1);  // of copies
  bool any = false;
  for (std::size_t w = 0; w < bytes.size(); ++w)
    if (const auto* copy = std::get_if<Copy>(&plan.works[w])) {
      bytes[w] = static_cast<std::int64_t>(copy->moved(bindings).base());
      any = true;
    }
  for (std::uint32_t s = 0; any && s < fleet.size(); ++s)
    for (const Op& op : plan.ops_of(plan.classes[fleet.class_of(s)])) {
      if (bytes[op.work.index()] < 0) continue;
      const Copy& copy = std::get<Copy>(plan.work(op));
      auto it = std::find_if(all.begin(), all.end(), [&](const Transfers& t) {
        return t.rank == fleet.rank(s) && t.from == copy.from && t.to == copy.to;
      });
      if (it == all.end()) it = all.insert(it, {fleet.rank(s), copy.from, copy.to, 0, 0});
      ++it->moves;
      it->bytes += bytes[op.work.index()];
    }
}

}  // namespace

struct Engine::Impl {
  const CostModel& cost;
  const ResourceMap& resources;
  EngineOptions options;
  std::optional<Fleet> fleet = std::nullopt;
  KnownReuse reuse = {};
  MemoryModel memory{memory_options()};
  Timeline timeline = {};
  std::uint32_t instances = 0;
  std::map<RankId, AllocationTrace> allocations = {};  // up to the last `take`

  MemoryModel::Options memory_options() const {
    return {options.record == Record::SpansAndMemory, options.allocator, options.device_capacity,
            options.log_allocations};
  }
  const Fleet& fleet_of(const Plan& plan, const Bindings& bindings) {
    if (!fleet || !fleet->matches(plan)) fleet.emplace(plan, bindings, cost, resources, options.expansion);
    return *fleet;
  }
  void clear() {
    memory = MemoryModel{memory_options()};
    timeline = {};
    instances = 0;
  }
};

Engine::Engine(const CostModel& cost, const ResourceMap& resources, EngineOptions options)
    : impl_{new Impl{.cost = cost, .resources = resources, .options = options}} {
  check_network(options);
}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;

ExecutionTotals Engine::execute(const Plan& plan, const Bindings& bindings) {
  Impl& e = *impl_;
  const std::int64_t start_ps = e.timeline.makespan_ps;
  const Surroundings around{plan, bindings, e.cost, e.reuse};
  const Fleet& fleet = e.fleet_of(plan, around.bindings());
  if (e.options.network) check_copies(plan, around.bindings(), e.cost);
  const std::size_t first_span = e.timeline.spans.size();
  // Before all that is there for the execution alone: what that leaves behind is then one piece of memory.
  if (e.options.record != Record::Totals) add_room(e.timeline.spans, num_ops(plan, fleet));
  CostTable costs{plan, around, e.cost, fleet};
  const OpTable ops{plan, fleet, costs};
  ExecutionContext context{.plan = plan, .fleet = fleet, .ops = ops, .costs = costs, .instance = e.instances++};
  if (e.options.collectives == Collectives::Detailed) context.stepping = &e.cost;
  context.network = e.options.network.get();
  if (e.options.record != Record::Totals) context.spans = &e.timeline.spans;
  context.first_span = first_span;
  if (e.options.track_memory) {
    context.memory = &e.memory;
    e.memory.begin(plan, fleet, ops, context.instance, start_ps);
  }
  Execution execution{context, start_ps};
  const std::int64_t end_ps = execution.run();
  if (context.memory != nullptr) e.memory.end(end_ps);
  if (e.timeline.plan_name.empty()) e.timeline.plan_name = plan.name;
  tell_standing(fleet, plan, e.timeline.standing);
  count_copies(fleet, plan, bindings, e.timeline.transfers);
  e.timeline.num_ranks = std::max(e.timeline.num_ranks, plan.mesh.size());
  e.timeline.makespan_ps = end_ps;
  e.timeline.instance_ends_ps.push_back(end_ps);
  return {start_ps, end_ps, execution.num_ops()};
}

Timeline Engine::take() {
  Impl& e = *impl_;
  Timeline out = std::move(e.timeline);
  out.peaks = e.memory.peaks();
  out.memory = e.memory.take_samples();
  std::sort(out.transfers.begin(), out.transfers.end(), [](const Transfers& a, const Transfers& b) {
    return std::tuple{a.rank, a.from, a.to} < std::tuple{b.rank, b.from, b.to};
  });
  e.allocations = e.memory.take_log();
  e.clear();
  return out;
}

std::map<RankId, AllocationTrace> Engine::take_allocations() { return std::exchange(impl_->allocations, {}); }

Timeline simulate(const Plan& plan, const Bindings& bindings, const CostModel& cost, const ResourceMap& resources,
                  EngineOptions options) {
  Engine engine{cost, resources, options};
  engine.execute(plan, bindings);
  return engine.take();
}

}  // namespace orrery
