// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/program/cluster/cluster_scheduler.hpp"

namespace orrery {

/// Something that happens to a cluster: jobs come, a job has computed what it was to compute (the rest of an epoch, or
/// all that it lacked), or the scheduler wants to be asked.
struct ClusterEvent {
  enum class Kind : std::uint8_t { Arrival, Milestone, Look };
  Kind kind = Kind::Look;
  double time = 0;  // when it is due; when it happened
  std::int64_t job = kNoJob;
  std::int64_t turn = 0;  // of a job: events of turns that are over do not count
};

/// Lets events happen. One that simulates lets them happen when they are due.
class ClusterClock {
 public:
  virtual ~ClusterClock() = default;
  /// `gpus`: who works until the event is due; none for arrivals and looks. What they worked for before is given up.
  virtual void post(const ClusterEvent& event, std::span<const std::int64_t> gpus) = 0;
  /// GPUs that work for nobody from now on.
  virtual void release(std::span<const std::int64_t>) {}
  /// The next event, at the time at which it happened. There is one.
  virtual ClusterEvent next() = 0;
  /// Whether another one has happened by then.
  virtual bool is_due(double now) = 0;
};
std::unique_ptr<ClusterClock> simulated_clock();

/// A job's GPUs from one change to the next. Before `ready` it was being started or rescaled.
struct JobStay {
  std::int64_t job = 0;
  double from = 0, ready = 0, to = 0;
  std::vector<std::int64_t> gpus;  // their numbers
};

/// A job's GPUs were changed to so many.
struct ClusterDecision {
  double time = 0;
  std::int64_t job = 0, gpus = 0;
};

/// Whether both give the same jobs the same numbers of GPUs in the same order.
bool is_same_order(const std::vector<ClusterDecision>& a, const std::vector<ClusterDecision>& b);

/// One job to its end.
struct JobRecord {
  const Job* job = nullptr;
  double end = 0, held = 0;
  std::int64_t changes = 0;  // of its GPUs, its start included
  double overhead = 0;       // seconds with GPUs that started or rescaled

  double jct() const { return end - job->arrival; }  // job completion time
  double queueing() const { return jct() - held; }
};

struct ClusterResult {
  std::string_view policy;
  std::vector<JobRecord> jobs;  // by id
  std::int64_t gpus = 0;
  double makespan = 0;     // from the first arrival to the last end
  double held = 0;         // GPU-seconds that jobs had
  double overhead = 0;     // GPU-seconds of them that started or rescaled
  std::int64_t looks = 0;  // how often the scheduler was asked

  double utilisation() const { return makespan > 0 ? held / (makespan * double(gpus)) : 0; }
};

/// Jobs on a cluster under one policy. Jobs compute epoch by epoch; one whose GPUs change within an epoch keeps what it
/// computed, and the cut epoch counts where it was more than half. `check` (may be empty) sees each placement that is
/// decided, `on_decision` and `on_stay` (likewise) its consequences, and `pause` (likewise) may throw to stop.
struct ClusterRequest {
  const JobFileOptions& options;
  const JobSet& jobs;
  JobRates& rates;
  std::int64_t gpus = 1;
  std::uint64_t seed = 1;
  std::function<void(const ClusterView&)> check = {};
  std::function<void(const ClusterDecision&)> on_decision = {};
  std::function<void(const JobStay&)> on_stay = {};
  std::function<void()> pause = {};
};
ClusterResult run_cluster(const ClusterRequest& request, const ClusterPolicy& policy, ClusterClock& clock);
/// The same by the simulated clock.
ClusterResult simulate_cluster(const ClusterRequest& request, const ClusterPolicy& policy);

/// Seconds that a change of a job's GPUs takes. Restarted: read its checkpoint, processes, a communicator, and before
/// that the checkpoint is written, which the job pays when it goes on. In place: two communicators, old and new workers
/// and new ones alone, a broadcast of parameters between them, and what is wrapped anew; new processes start while the
/// job goes on with its old GPUs, which is left out, as is how times grow with the number of workers.
double start_seconds(const OverheadOptions& options);
double restart_seconds(const OverheadOptions& options, const JobTemplate& type);
double rescale_seconds(const OverheadOptions& options, const JobTemplate& type);

}  // namespace orrery
