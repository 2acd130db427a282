// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/app/session.hpp"
#include "sim/app/uncertainty.hpp"
#include "sim/machine/rank_order.hpp"
#include "sim/timeline/interval.hpp"

namespace orrery {

constexpr int kSchemaVersion = 1;

/// A rate without unit in four significant digits, never with an exponent: "57,060", "129.6".
std::string rate_text(double per_second);

struct NamedSeconds {
  std::string name;
  double seconds = 0;
};

/// The most memory of a device, and what makes it.
struct MemoryReport {
  std::int64_t bytes = 0, arena_bytes = 0;
  /// Of all ranks that share the memory of their node, this one among them, each at its own peak.
  std::int64_t together = 0, sharers = 1;
  std::optional<double> capacity;  // of the memory, shared or not; unknown for a measured run without parameters
  std::uint32_t rank = 0;
  std::string op;  // that asked for the last of it; empty: before the first
  struct Owner {
    std::string name, role;
    std::int64_t bytes = 0;
  };
  std::vector<Owner> by_role, largest;

  bool fits() const { return !capacity || double(together) <= *capacity; }
};

/// The most that a rank held of a tier, and what there is of it.
struct TierReport {
  Tier tier = Tier::Device;
  std::int64_t bytes = 0;
  std::optional<double> capacity;

  bool fits() const { return !capacity || double(bytes) <= *capacity; }
};

/// A stage of a pipeline in one step: what its busiest rank does, communication included, in place of waiting for
/// others; the most memory that a rank of it holds, and of how much: its part of what it shares with others.
struct StageReport {
  double busy = 0;
  std::int64_t bytes = 0;
  double room = std::numeric_limits<double>::infinity();
};

/// How even stages are, in time and in memory (Galvatron-BMW, arXiv 2307.02031): 1 − the largest/the sum, 1 − 1/stages
/// where all are alike.
struct BalanceDegrees {
  double time = 0, memory = 0;
};
BalanceDegrees balance_of(std::span<const StageReport> stages);

/// What ranks copy from tier to tier in one step; of the rank that copies most.
struct TransferReport {
  Tier from = Tier::Device, to = Tier::Device;
  double moves = 0, bytes = 0;
};

/// What came of drafting and verifying. Shares of time are of all rounds but the first.
struct SpeculationReport {
  std::int64_t rounds = 0;
  double tokens_per_round = 0, verified_per_round = 0;  // of one sequence
  double drafting = 0, verifying = 0;                   // seconds of a round
  std::vector<std::int64_t> accepted;                   // rounds of a sequence with 0, 1, 2 … accepted drafts
};

/// A run, predicted or measured, in numbers. Times are of one steady step: the mean of all but the first; of a
/// generation, one decode step, or one round of drafting and verifying.
struct Report {
  bool measured = false;
  std::string scenario, id, workload, plan, machine, parameters, device;
  double step = 0, low = 0, high = 0;
  std::size_t steps = 0;  // that the mean is of
  double total = 0;       // all steps
  std::optional<double> prefill;
  double tokens_per_second = 0, mfu = 0;
  double tokens_per_step = 0, model_flops = 0;
  std::optional<double> padding;  // share of the places of windows of documents that hold no token
  MemoryReport memory;
  std::vector<TierReport> tiers;  // in use; only the device's: empty
  std::vector<TransferReport> transfers;
  std::vector<StageReport> stages;     // one where the mesh has no axis pp
  std::vector<NamedSeconds> by_class;  // and waiting, idle: add up to the step
  double exposed_communication = 0, bubble = 0;
  std::vector<NamedSeconds> critical_path;  // ops by name pattern, longest first
  std::uint64_t ops = 0;
  std::int64_t ranks = 1, rank_classes = 1;
  std::vector<AxisSpread> spread;  // how the ranks of each axis lie on nodes; empty on one node
  bool calibrated = true;          // but for a negligible share
  std::vector<Extrapolation> extrapolated;
  double wall_seconds = 0;
  std::vector<double> loss;
  std::vector<std::int32_t> tokens;  // generated, of the first sequence
  std::string text;
  std::optional<SpeculationReport> speculation;
};

/// What a report is made of; `machine` is null for runs on a computer without parameters.
struct ReportSource {
  const Scenario& scenario;
  const Program& program;
  const Recording& recording;
  const Machine* machine = nullptr;
};
Report make_report(const ReportSource& source);
/// Whether what is needed of each memory is there: of devices, hosts and disks.
bool all_fits(const Report& report);

class KnownOpCosts;

/// The steps that a report stands for, one after another, and the path that decides how long they take.
struct SteadySteps {
  const Timeline& timeline;
  const CriticalPath& path;
  const std::vector<std::uint32_t>& instances;  // of the recording
};

/// One standard deviation of ln(truth/prediction) of a step.
double step_deviation(const ReportSource& source, KnownOpCosts& costs, const PlanDigests& plans,
                      const SteadySteps& steps);

/// For people; `console` gives the colours.
std::string to_text(const Report& report, const Console& console);
nlohmann::json to_json(const Report& report);

}  // namespace orrery
