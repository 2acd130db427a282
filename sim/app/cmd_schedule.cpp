// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/partial_file.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/schedule/schedule_report.hpp"
#include "sim/app/schedule/schedule_trace.hpp"
#include "sim/app/wiring.hpp"
#include "sim/program/cluster/paced_workers.hpp"

namespace orrery {
namespace {

/// One line per job and policy.
class JobFile {
 public:
  explicit JobFile(const std::string& path) : file_{path} {
    file_.stream() << "policy,job,template,gpus_asked,samples,epochs,arrival_s,end_s,jct_s,execution_s,queueing_s,"
                      "starting_s,changes\n";
  }
  void add(const ScheduleCase& c, const ClusterResult& result) {
    for (const JobRecord& r : result.jobs)
      file_.stream() << fmt::format("{},{},{},{},{},{:.0f},{:.6f},{:.6f},{:.6f},{:.6f},{:.6f},{:.6f},{}\n",
                                    result.policy, r.job->id, c.jobs.templates[r.job->type].name, r.job->gpus,
                                    r.job->samples, r.job->epochs, r.job->arrival, r.end, r.jct(), r.held, r.queueing(),
                                    r.overhead, r.changes);
  }
  void close() { file_.close(); }

 private:
  PartialFile file_;
};

class ScheduleJobs final : public Command {
 public:
  std::string_view name() const override { return "schedule"; }
  std::string_view summary() const override { return "share a cluster's GPUs among training jobs"; }
  std::string_view arguments() const override { return "JOBS"; }
  Arity arity() const override { return {1, 1}; }
  std::string details() const override {
    return "JOBS is a file, or a folder with a jobs.yaml: templates of jobs, and jobs that are listed, in a CSV file, "
           "or\n"
           "drawn. JCT: from when a job comes to its end. Policies: `orrery list cluster-schedulers`.\n";
  }
  std::vector<Flag> flags() override {
    return {
        {"--cluster", "C", "file, or cluster as `orrery list clusters` names it, in place of the file's",
         [this](const std::string& v) { choice_.cluster = v; }},
        {"--policy", "NAME", "who decides, or all of them one after another; default all",
         [this](const std::string& v) { policy_ = v; }},
        {"--seed", "N", "of all that is drawn, in place of the file's",
         [this](const std::string& v) { choice_.seed = integer_option("--seed", v, 0); }},
        {"--jobs", "FILE", "also write one line per job and policy (CSV)", [this](const std::string& v) { jobs_ = v; }},
        {"--trace", "FILE.json", "also write who had which GPU when, of one policy, as Chrome JSON",
         [this](const std::string& v) { trace_ = v; }},
        {"--paced", "FACTOR", "also let threads be held for FACTOR times the modelled times, and compare",
         [this](const std::string& v) { paced_ = positive_option("--paced", v); }}};
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    std::vector<const ClusterPolicy*> policies;
    for (const ClusterPolicy& p : cluster_policies())
      if (policy_ == "all" || &p == &find_cluster_policy(policy_)) policies.push_back(&p);
    if (!trace_.empty() && policies.size() > 1)
      throw UserError{"--trace shows one policy", "give --policy NAME with it"};
    const ScheduleCase c = load_schedule(arguments[0], choice_, context.wiring.locations());
    const Reproducer reproducer{context.wiring, [&] { context.interrupt.check(); }};
    JobRates rates = rates_of(c, reproducer);
    ScheduleReport report{c, {}};
    std::optional<JobFile> file;
    if (!jobs_.empty()) file.emplace(jobs_);
    for (const ClusterPolicy* p : policies) {
      report.policies.push_back(outcome(context, c, rates, *p));
      if (file) file->add(c, report.policies.back().result);
    }
    if (file) file->close();
    context.console.out(context.json ? to_json(report).dump(2) + "\n" : to_text(report));
    return exit_code::kOk;
  }

 private:
  PolicyOutcome outcome(AppContext& context, const ScheduleCase& c, JobRates& rates, const ClusterPolicy& policy) {
    std::vector<ClusterDecision> decisions, really;
    std::optional<ScheduleTrace> trace;
    if (!trace_.empty()) trace.emplace(trace_, c);
    ClusterRequest request{
        .options = c.options, .jobs = c.jobs, .rates = rates, .gpus = c.cluster.num_ranks(), .seed = c.seed};
    request.pause = [&] { context.interrupt.check(); };
    request.on_decision = [&](const ClusterDecision& d) { decisions.push_back(d); };
    if (trace) request.on_stay = [&](const JobStay& s) { trace->add(s); };
    const auto start = std::chrono::steady_clock::now();
    PolicyOutcome out{simulate_cluster(request, policy), {}, 0};
    out.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (trace) trace->close();
    if (paced_ == 0) return out;
    request.on_stay = {};
    request.on_decision = [&](const ClusterDecision& d) { really.push_back(d); };
    out.paced = PacedComparison{run_cluster(request, policy, *paced_workers(request.gpus, paced_)), false, 0};
    out.paced->is_same_order = is_same_order(decisions, really);
    for (std::size_t i = 0; i < out.result.jobs.size(); ++i) {
      const double simulated = out.result.jobs[i].jct();
      out.paced->worst = std::max(out.paced->worst, std::abs(out.paced->result.jobs[i].jct() / simulated - 1));
    }
    return out;
  }

  ScheduleChoice choice_;
  std::string policy_ = "all", jobs_, trace_;
  double paced_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_schedule() { return std::make_unique<ScheduleJobs>(); }

}  // namespace orrery
