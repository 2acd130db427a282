// SPDX-License-Identifier: Apache-2.0
// From a scenario to what its users get.
#include <fmt/format.h>

#include <chrono>

#include "sim/app/placed_error.hpp"
#include "sim/app/serving/serve_checks.hpp"
#include "sim/app/serving/serve_report.hpp"

namespace orrery {
namespace {

const ServeOptions& options_of(const Scenario& s) {
  if (!s.options.workload.serve)
    throw UserError{fmt::format("the workload of {} is `{}`, not `serve`", in_quotes(s.name), s.workload_name()),
                    "set `workload: {serve: …}`; `orrery simulate` takes the others"};
  return *s.options.workload.serve;
}

void check_room(const Scenario& s, const ServeOptions& o, std::int64_t ranks) {
  const std::int64_t replicas = o.replicas + o.prefill_replicas, have = s.cluster.num_ranks();
  if (replicas * ranks > have)
    throw OptionError{{"serve.replicas", "mesh"},
                      fmt::format("{} replicas of {} rank{} each, but the cluster has {} device{}", replicas, ranks,
                                  ranks == 1 ? "" : "s", have, have == 1 ? "" : "s"),
                      fmt::format("replicas that fit: {}", have / ranks)};
}

ServeReport served(const ServeRequest& r, const ServeOptions& options) {
  const Scenario& s = r.scenario;
  const auto start = std::chrono::steady_clock::now();
  ServeReport report{.scenario = s.name, .options = options, .memory = {}, .result = {}};
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
  check_pool(s, o.replica, report.memory);
  report.unread = unread_keys(s, o);
  report.doubt = times.doubt();
  report.multiples = multiples_of(deployment.profile);
  if (!report.fits()) return report;
  const auto run = [&](const StepFactors& factors, const std::function<void(const Answer&)>& on_answer,
                       const std::function<void(const ServedStep&)>& on_step) {
    ScaledTimes scaled{times, factors};
    const auto source = make_requests(o.traffic, context_of(s.model, o));
    return serve({.options = o,
                  .blocks = report.memory.pool_of(o.replica),
                  .source = *source,
                  .times = scaled,
                  .on_answer = on_answer,
                  .on_step = on_step,
                  .check = r.check});
  };
  OtherAnswers others;
  std::function<void(const Answer&)> keep, answered;
  if (r.interval)
    for (const StepFactors& factors : other_runs(report.doubt)) {
      if (r.on_answer) keep = [&others, at = report.others.size()](const Answer& a) { others.add(at, a); };
      report.others.push_back(run(factors, keep, {}));
    }
  if (r.on_answer)
    answered = [&](const Answer& a) {
      const auto intervals = others.intervals(a, report.multiples);
      r.on_answer(a, r.interval ? &intervals : nullptr);
    };
  report.result = run({}, answered, r.on_step);
  report.templates = static_cast<std::int64_t>(times.num_templates());
  report.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace

ServeReport serve_scenario(const ServeRequest& r) {
  const ServeOptions& options = options_of(r.scenario);
  try {
    return served(r, options);
  } catch (const UserError& e) {
    throw placed(e, r.scenario.document);
  }
}

}  // namespace orrery
