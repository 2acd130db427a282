// SPDX-License-Identifier: Apache-2.0
#include "sim/app/report.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "sim/app/instances.hpp"
#include "sim/base/sha256.hpp"
#include "sim/program/speculation/speculation.hpp"
#include "sim/timeline/analysis.hpp"
#include "sim/timeline/compare.hpp"

namespace orrery {
namespace {

constexpr std::size_t kPathRows = 10, kLargestOwners = 8;
constexpr double kQuantile95 = 1.6448536269514722;

DType arithmetic_type(const Workload& w) {
  return dtype_of(w.train ? w.train->dtype : w.generate ? w.generate->dtype : w.infer->dtype);
}

/// What the ranks on one memory have at their peaks: on a device's own memory its rank, on that of a host all ranks of
/// the node. A peak of a folded timeline stands for those of its class.
class Memories {
 public:
  Memories(const Timeline& t, const Machine* machine, const Plan& plan, AllocatorKind allocator)
      : machine_{machine}, allocator_{allocator} {
    std::vector<RankId> sharers;
    for (std::size_t r = 0; machine != nullptr && r < static_cast<std::size_t>(plan.mesh.size()); ++r)
      if (!machine->cost->own_memory(RankId{r})) sharers.push_back(RankId{r});
    if (sharers.empty()) return;
    std::map<ClassId, std::int64_t> of_class;
    const std::vector<ClassId> class_of = plan.class_of_ranks();
    std::map<std::uint32_t, std::int64_t> of_rank;
    for (const Peak& p : t.peaks)
      if (p.tier == Tier::Device) {
        of_rank[p.rank.value] = held(p);
        if (p.rank.index() < class_of.size()) of_class.try_emplace(class_of[p.rank.index()], held(p));
      }
    for (const RankId r : sharers) {
      const auto own = of_rank.find(r.value);
      Sum& node = nodes_[machine->cost->node_of(r)];
      node.bytes += own != of_rank.end() ? own->second : of_class[class_of[r.index()]];
      ++node.ranks;
    }
  }

  struct Sum {
    std::int64_t bytes = 0, ranks = 0;
  };
  Sum around(const Peak& p) const {
    const auto it = nodes_.empty() ? nodes_.end() : nodes_.find(machine_->cost->node_of(p.rank));
    return it == nodes_.end() ? Sum{held(p), 1} : it->second;
  }
  double capacity(const Peak& p) const {
    return machine_ == nullptr ? 0.0 : machine_->cost->capacity(Tier::Device, p.rank).base();
  }

 private:
  /// What the device must have: live tensors, and with an allocator that was chosen all that it has taken.
  std::int64_t held(const Peak& p) const { return allocator_ == AllocatorKind::BestFit ? p.bytes : p.arena_bytes; }

  const Machine* machine_;
  AllocatorKind allocator_;
  std::map<std::int64_t, Sum> nodes_;
};

/// The peak of device memory that comes closest to what there is, or exceeds it most, summed by role.
MemoryReport memory_of(const Timeline& t, const PlanDigests& plans, const Machine* machine, const Memories& memories) {
  const auto over = [&](const Peak& p) {
    return std::pair{double(memories.around(p).bytes) - memories.capacity(p), p.bytes};
  };
  MemoryReport out;
  const Peak* highest = nullptr;
  for (const Peak& p : t.peaks)
    if (p.tier == Tier::Device && (highest == nullptr || over(p) > over(*highest))) highest = &p;
  if (machine != nullptr) out.capacity = machine->cost->capacity(Tier::Device).base();
  if (highest == nullptr) return out;
  if (machine != nullptr) out.capacity = memories.capacity(*highest);
  out.bytes = highest->bytes, out.arena_bytes = highest->arena_bytes, out.rank = highest->rank.value;
  out.together = memories.around(*highest).bytes, out.sharers = memories.around(*highest).ranks;
  const PlanDigest& plan = plans[t.plan_of(highest->instance)];
  if (!highest->op.is_none()) out.op = plan.name_of(highest->op);
  std::map<std::string, std::int64_t> by_role;
  std::int64_t unnamed = highest->bytes;
  for (const auto& [tensor, bytes] : highest->owners) {
    const TensorDigest d = plan.tensor(tensor);
    by_role[std::string{name_of(d.role)}] += bytes;
    unnamed -= bytes;
    if (out.largest.size() < kLargestOwners)
      out.largest.push_back({std::string{plan.names[d.name]}, std::string{name_of(d.role)}, bytes});
  }
  if (unnamed > 0) by_role["other plans"] = unnamed;
  for (const auto& [role, bytes] : by_role) out.by_role.push_back({role, role, bytes});
  std::stable_sort(out.by_role.begin(), out.by_role.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return out;
}

/// The ranks of a node share what is not their device's: their peaks are those of one rank.
std::vector<TierReport> tiers_of(const Timeline& t, const Machine* machine) {
  std::vector<TierReport> out;
  for (int tier = 0; tier < kNumTiers; ++tier) {
    TierReport row{static_cast<Tier>(tier), 0, {}};
    for (const Peak& p : t.peaks)
      if (p.tier == row.tier && p.bytes >= row.bytes) {
        row.bytes = p.bytes;
        if (machine != nullptr) row.capacity = machine->cost->capacity(row.tier, p.rank).base();
      }
    if (row.bytes > 0) out.push_back(row);
  }
  if (out.size() == 1 && out.front().tier == Tier::Device) out.clear();
  return out;
}

std::vector<StageReport> stages_of(const Plan& plan, const Timeline& t, const Analysis& a, double count,
                                   const Memories& memories) {
  const auto pp =
      std::find_if(plan.mesh.axes.begin(), plan.mesh.axes.end(), [](const Axis& axis) { return axis.name == "pp"; });
  const auto axis = static_cast<std::size_t>(pp - plan.mesh.axes.begin());
  const bool has_stages = pp != plan.mesh.axes.end();
  std::vector<StageReport> out(has_stages ? static_cast<std::size_t>(pp->size) : 1);
  const auto stage_of = [&](RankId r) -> StageReport& {
    return out[has_stages ? static_cast<std::size_t>(plan.mesh.coordinates(r)[axis]) : 0];
  };
  for (const RankTime& r : a.ranks) {
    StageReport& s = stage_of(r.rank);
    s.busy = std::max(s.busy, (a.makespan.base() - double(r.waiting_ps + r.idle_ps) * 1e-12) / count);
  }
  for (const Peak& p : t.peaks)
    if (p.tier == Tier::Device) {
      StageReport& s = stage_of(p.rank);
      s.bytes = std::max(s.bytes, p.bytes);
      if (memories.capacity(p) > 0) s.room = std::min(s.room, memories.capacity(p) / double(memories.around(p).ranks));
    }
  return out;
}

std::vector<TransferReport> transfers_of(const Timeline& t) {
  std::vector<TransferReport> out;
  const double steps = std::max<double>(1, double(t.instance_ends_ps.size()));
  for (const Transfers& moved : t.transfers) {
    auto row = std::find_if(out.begin(), out.end(),
                            [&](const TransferReport& r) { return r.from == moved.from && r.to == moved.to; });
    if (row == out.end()) row = out.insert(row, {moved.from, moved.to, 0, 0});
    row->moves = std::max(row->moves, double(moved.moves) / steps);
    row->bytes = std::max(row->bytes, double(moved.bytes) / steps);
  }
  return out;
}

std::vector<NamedSeconds> classes_of(const Analysis& a, double steps) {
  std::vector<NamedSeconds> out;
  for (int c = 0; c < kNumOpClasses; ++c)
    if (a.by_class[static_cast<std::size_t>(c)] > 0)
      out.push_back({std::string{name_of(static_cast<OpClass>(c))}, a.by_class[static_cast<std::size_t>(c)] / steps});
  std::stable_sort(out.begin(), out.end(), [](const auto& x, const auto& y) { return x.seconds > y.seconds; });
  if (a.waiting > Seconds{}) out.push_back({"waiting", a.waiting.base() / steps});
  if (a.idle > Seconds{}) out.push_back({"idle", a.idle.base() / steps});
  return out;
}

std::vector<NamedSeconds> path_of(const Analysis& a, const Timeline& t, const PlanDigests& plans, double steps) {
  std::map<std::string, double> by_name;
  std::vector<std::vector<double*>> sums(plans.size());  // per plan and name, in by_name
  for (const PathSegment& s : a.path.segments) {
    const double seconds = double(s.end_ps - s.start_ps) * 1e-12 / steps;
    if (s.is_gap) {
      by_name["(launch)"] += seconds;
      continue;
    }
    const Span& span = t.spans[s.span];
    const PlanDigest& plan = plan_of(t, plans, span);
    std::vector<double*>& of_names = sums[t.plan_of(span.instance)];
    of_names.resize(plan.names.size(), nullptr);
    double*& sum = of_names[plan[span.op].name.index()];
    if (sum == nullptr) sum = &by_name[name_pattern(plan.name_of(span.op))];
    *sum += seconds;
  }
  std::vector<NamedSeconds> out;
  for (const auto& [name, seconds] : by_name) out.push_back({name, seconds});
  std::stable_sort(out.begin(), out.end(), [](const auto& x, const auto& y) { return x.seconds > y.seconds; });
  if (out.size() > kPathRows) out.resize(kPathRows);
  return out;
}

/// The spread of measured steps about their mean; of a prediction, what its parameters say.
void set_interval(Report& r, const ReportSource& source, KnownOpCosts* costs, const PlanDigests& plans,
                  const std::vector<InstanceTime>& times, const SteadySteps& steps) {
  const std::vector<std::uint32_t>& steady = steps.instances;
  r.low = r.high = r.step;
  if (!r.measured && costs != nullptr) {
    const Interval i = log_normal_interval(Seconds{r.step}, step_deviation(source, *costs, plans, steps));
    r.low = i.low.base(), r.high = i.high.base();
  } else if (r.measured && steady.size() > 1 && !source.scenario.speculates()) {
    double sum = 0;
    for (const std::uint32_t i : steady) sum += std::pow(times[i].seconds() - r.step, 2);
    const double half = kQuantile95 * std::sqrt(sum / double(steady.size() - 1) / double(steady.size()));
    r.low -= half, r.high += half;
  }
}

void set_machine(Report& r, const Machine& m, KnownOpCosts& costs, const std::vector<const Plan*>& plans,
                 const Recording& recording) {
  r.parameters = m.parameters;
  r.extrapolated = extrapolations(costs, plans, recording);
  double share = 0;
  for (const Extrapolation& e : r.extrapolated) share += e.share;
  r.calibrated = share < kNegligibleShare;
}

void set_outcomes(Report& r, const Recording& recording) {
  for (const Outcome& o : recording.outcomes) {
    if (const auto loss = o.values.find("loss"); loss != o.values.end() && !loss->second.empty())
      r.loss.push_back(loss->second[0]);
    if (const auto next = o.values.find("next_tokens"); next != o.values.end() && !next->second.empty())
      r.tokens.push_back(static_cast<std::int32_t>(next->second[0]));
  }
}

/// Passes of all rounds but the first, one after another.
std::vector<std::uint32_t> passes_of_rounds(const Timeline& t) {
  constexpr std::uint32_t kPrefill = 0, kStart = 1;
  std::vector<std::uint32_t> passes;
  std::size_t rounds = 0, first_end = 0;
  for (std::uint32_t i = 0; i < t.instance_ends_ps.size(); ++i) {
    if (t.plan_of(i) == kPrefill) continue;
    if (t.plan_of(i) == kStart && ++rounds == 2) first_end = passes.size();
    passes.push_back(i);
  }
  passes.erase(passes.begin(), passes.begin() + static_cast<std::ptrdiff_t>(first_end));
  return passes;
}

/// Per round in place of per pass.
void set_speculation(Report& r, const SpeculationProgram& program, const std::vector<InstanceTime>& times,
                     const std::vector<std::uint32_t>& passes) {
  const SpeculationProgress& p = program.progress();
  SpeculationReport s{.rounds = p.rounds, .tokens_per_round = p.tokens_per_round(), .accepted = p.accepted};
  if (p.sequence_rounds > 0) s.verified_per_round = double(p.verified) / double(p.sequence_rounds);
  double rounds = 0;
  for (const std::uint32_t i : passes) {
    const bool verifies = program.plans()[times[i].plan].has_port("path");
    rounds += verifies;
    (verifies ? s.verifying : s.drafting) += times[i].seconds();
  }
  if (rounds > 0) s.verifying /= rounds, s.drafting /= rounds;
  r.steps = static_cast<std::size_t>(rounds);
  r.tokens_per_step = double(p.generated) / double(std::max<std::int64_t>(1, p.rounds));
  r.tokens_per_second = r.step > 0 ? r.tokens_per_step / r.step : 0;
  if (r.measured) r.tokens = program.generated(0);
  r.speculation = std::move(s);
}

/// Of the pieces of prompts, which the first `count` plans read.
double prefill_seconds(const std::vector<InstanceTime>& times, std::size_t count) {
  double seconds = 0;
  for (const InstanceTime& i : times) {
    if (i.plan >= count) break;
    seconds += i.seconds();
  }
  return seconds;
}

void set_identity(Report& r, const ReportSource& source) {
  r.measured = source.recording.timeline.source == TimelineSource::Measured;
  r.scenario = source.scenario.name;
  r.id = sha256(canonical_scenario(source.scenario));
  r.workload = source.scenario.workload_name();
  r.machine = source.recording.timeline.machine;
}

}  // namespace

bool all_fits(const Report& r) {
  return r.memory.fits() && std::all_of(r.tiers.begin(), r.tiers.end(), [](const TierReport& t) { return t.fits(); });
}

BalanceDegrees balance_of(std::span<const StageReport> stages) {
  double busiest = 0, busy = 0, fullest = 0, bytes = 0;
  for (const StageReport& s : stages) {
    busiest = std::max(busiest, s.busy), busy += s.busy;
    fullest = std::max(fullest, double(s.bytes)), bytes += double(s.bytes);
  }
  return {busy > 0 ? 1 - busiest / busy : 0, bytes > 0 ? 1 - fullest / bytes : 0};
}

Report make_report(const ReportSource& source) {
  const Timeline& t = source.recording.timeline;
  const std::vector<std::uint32_t> steady = steady_instances(t);
  if (steady.empty()) throw UserError{"the workload has no steps: there is nothing to report"};
  const std::vector<const Plan*> plans = plans_of(source.program);
  const PlanDigests digests = outlines(plans);
  const std::vector<InstanceTime> times = instance_times(t);
  const auto* speculation = dynamic_cast<const SpeculationProgram*>(&source.program);
  const std::vector<std::uint32_t> passes = speculation ? passes_of_rounds(t) : steady;
  const bool is_whole = passes.size() == times.size() && t.source == TimelineSource::Predicted;
  const Timeline some = is_whole ? Timeline{} : packed(t, passes);
  const Timeline& steps = is_whole ? t : some;
  const Analysis a = analyse(steps, digests);
  const std::vector<double> rounds = speculation ? round_seconds(t) : std::vector<double>{};
  const double count = double(speculation ? rounds.size() : steady.size());
  Report r;
  set_identity(r, source);
  r.steps = steady.size();
  r.step = speculation ? std::accumulate(rounds.begin(), rounds.end(), 0.0) / count : mean_seconds(times, steady);
  for (const InstanceTime& i : times) r.total += i.seconds();
  if (r.workload == "generate") r.prefill = prefill_seconds(times, speculation ? 1 : plans.size() - 1);
  const Plan& plan = *plans[t.plan_of(steady.front())];
  r.plan = plan.name;
  r.tokens_per_step = plan.purpose.tokens, r.model_flops = plan.purpose.model_flops.base();
  const auto& train = source.scenario.options.workload.train;
  if (train && train->packing) r.padding = plan.purpose.padding;
  const Memories memories{t, source.machine, plan, source.scenario.options.memory.allocator};
  r.memory = memory_of(t, digests, source.machine, memories);
  r.tiers = tiers_of(t, source.machine);
  r.transfers = transfers_of(t);
  r.stages = stages_of(plan, t, a, count, memories);
  r.by_class = classes_of(a, count);
  r.critical_path = path_of(a, steps, digests, count);
  r.exposed_communication = a.exposed_communication.base() / count;
  r.bubble = a.bubble;
  r.ops = plan.ops.size();
  r.ranks = plan.mesh.size(), r.rank_classes = static_cast<std::int64_t>(plan.classes.size());
  if (source.scenario.cluster.num_nodes() > 1) r.spread = spread_of_axes(source.scenario.cluster, plan.mesh);
  FlopsPerSecond peak;
  std::optional<KnownOpCosts> costs;
  if (source.machine != nullptr) {
    set_machine(r, *source.machine, costs.emplace(*source.machine->cost), plans, source.recording);
    for (std::int64_t rank = 0; rank < r.ranks; ++rank)
      peak += source.machine->cost->device(RankId{static_cast<std::size_t>(rank)})
                  .peak(arithmetic_type(source.scenario.options.workload));
  }
  const Throughput rate = throughput(steps, digests, peak);
  r.tokens_per_second = rate.tokens_per_second, r.mfu = rate.mfu;
  set_interval(r, source, costs ? &*costs : nullptr, digests, times, {steps, a.path, steady});
  if (speculation) {
    set_speculation(r, *speculation, times, passes);
    return r;
  }
  if (r.measured) set_outcomes(r, source.recording);
  return r;
}

}  // namespace orrery
