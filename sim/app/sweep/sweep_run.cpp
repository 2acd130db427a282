// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_run.hpp"

#include <fmt/format.h>

#include <ctime>
#include <map>
#include <set>

#include "sim/app/sweep/sweep_meeting.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {
namespace {

SweepRecord refusal_of(const PreparedPoint& p) {
  SweepRecord r;
  r.id = p.point.id;
  r.scenario = p.point.scenario;
  r.status = PointStatus::Refused;
  r.error = p.refusal;
  r.host = own_host();
  r.time = std::time(nullptr);
  return r;
}

/// Those without a record, each id once; refusals become records at once.
std::vector<SweepTask> open_tasks(const std::vector<PreparedPoint>& prepared, ShardFile& shard, SweepResults& sweep) {
  std::vector<SweepTask> out;
  std::set<std::string> asked;
  for (const PreparedPoint& p : prepared) {
    if (sweep.records.contains(p.point.id) || !asked.insert(p.point.id).second) continue;
    if (p.refusal.empty()) {
      out.push_back(p.task);
      continue;
    }
    const SweepRecord r = refusal_of(p);
    shard.append(r);
    sweep.add(r);
  }
  return out;
}

void listen_for_workers(const SweepRun& run, SweepServerOptions& options, Console& console) {
  options.listen = run.listen;
  options.token = run.token.empty() ? make_token(run.folder) : read_token(run.token);
  options.on_listen = [&run, &console](std::uint16_t port) {
    const ListenAt at{run.listen->host, port};
    leave_address(run.folder, at);
    console.note(fmt::format("workers join by `orrery sweep-worker {}:{} --token {}`", at.host, at.port,
                             run.token.empty() ? run.folder + "/token" : run.token));
  };
}

}  // namespace

void compute_points(const SweepPlan& plan, const std::vector<PreparedPoint>& prepared, const SweepRun& run,
                    ShardFile& shard, SweepResults& sweep, AppContext& context) {
  const std::vector<SweepTask> open = open_tasks(prepared, shard, sweep);
  std::multimap<std::string, std::size_t> places;  // of points that are told of when they end
  for (std::size_t i = sweep.points.size() - prepared.size(); run.on_point && i < sweep.points.size(); ++i) {
    if (sweep.record_of(sweep.points[i]) != nullptr) run.on_point(i);
    places.emplace(sweep.points[i].id, i);
  }
  SweepServerOptions options{.jobs = run.jobs, .version = plan.version, .point_timeout = run.point_timeout};
  options.on_record = [&](std::size_t, const SweepRecord& r) {
    shard.append(r);
    sweep.add(r);
    const auto [first, last] = places.equal_range(r.id);
    for (auto place = first; place != last; ++place) run.on_point(place->second);
  };
  if (run.listen) listen_for_workers(run, options, context.console);
  context.interrupt.wait_for_work();
  const SweepOutcome outcome =
      serve_sweep(plan.to_json(), open, options, point_computers(context), context.console, context.interrupt);
  for (const std::size_t task : outcome.conflicts) sweep.conflicts.push_back(open[task].id);
  shard.sync();
}

}  // namespace orrery
