// SPDX-License-Identifier: Apache-2.0
// From a scenario to what its users get.
#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "calibrate/statistics.hpp"
#include "sim/app/serving/serve_report.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

const ServeOptions& options_of(const Scenario& s) {
  if (!s.options.workload.serve)
    throw UserError{fmt::format("the workload of {} is `{}`, not `serve`", orrery::quoted(s.name), s.workload_name()),
                    "set `workload: {serve: …}`; `orrery simulate` takes the others"};
  return *s.options.workload.serve;
}

void check_room(const Scenario& s, const ServeOptions& o, std::int64_t ranks) {
  const std::int64_t replicas = o.replicas + o.prefill_replicas, have = s.cluster.num_ranks();
  if (replicas * ranks > have)
    throw UserError{fmt::format("{} replicas of {} rank{} each, but the cluster has {} device{}", replicas, ranks,
                                ranks == 1 ? "" : "s", have, have == 1 ? "" : "s"),
                    fmt::format("replicas that fit: {}", have / ranks)};
}

}  // namespace

ServeReport serve_scenario(const ServeRequest& r) {
  const Scenario& s = r.scenario;
  const auto start = std::chrono::steady_clock::now();
  ServeReport report{.scenario = s.name, .options = options_of(s), .memory = {}, .result = {}};
  ServeOptions& o = report.options;
  if (!s.trace_path.empty()) o.traffic.trace = s.trace_path;
  const std::unique_ptr<Strategy> strategy = r.wiring.strategy(s.strategy, s.strategy_options);
  report.ranks = std::max<std::int64_t>(1, strategy->mesh().size());
  check_room(s, o, report.ranks);
  const Deployment deployment{
      .model = s.model,
      .strategy = *strategy,
      .wiring = r.wiring,
      .cluster = s.cluster,
      .profile = s.options.profile.empty() ? SoftwareProfile{} : find_profile(s.options.profile),
      .options = o};
  PlanTimes times{deployment};
  report.memory = times.memory(o.replica);
  report.deviation = times.deviation();
  report.first_deviation = deployment.profile.deviation_of({.kind = "first", .device = s.cluster.device});
  if (!report.fits()) return report;
  const auto run = [&](double scale, const std::function<void(const Answer&)>& on_answer,
                       const std::function<void(const ServedStep&)>& on_step) {
    times.scale(scale);
    const auto source = make_requests(o.traffic, context_of(s.model, o));
    return serve({.options = o,
                  .blocks = report.memory.pool_of(o.replica),
                  .source = *source,
                  .times = times,
                  .on_answer = on_answer,
                  .on_step = on_step,
                  .check = r.check});
  };
  report.result = run(1, r.on_answer, r.on_step);
  if (r.interval) {
    report.fast = run(std::exp(-kNinetyPercent * report.deviation), {}, {});
    report.slow = run(std::exp(kNinetyPercent * report.deviation), {}, {});
  }
  report.templates = static_cast<std::int64_t>(times.num_templates());
  report.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace orrery
