// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/program/cluster/job_rates.hpp"

namespace orrery {

/// Which job each GPU of a cluster works for, node by node; `kNoJob`: for none.
using JobPlacement = std::vector<std::int64_t>;
constexpr std::int64_t kNoJob = -1;

/// A job under way: what a scheduler may look at.
struct JobState {
  const Job* job = nullptr;
  const JobTemplate* type = nullptr;
  std::int64_t gpus = 0, batch = 0;           // now; 0: it waits
  bool started = false;                       // ever
  double samples = 0, progress = 0;           // that it has computed; its epochs that count, of `job->epochs`
  std::int64_t epochs = 0, epochs_since = 0;  // whole ones, and those since it was placed as it is
  double held = 0, attained = 0;              // seconds with GPUs, and times GPUs
  std::vector<std::pair<std::int64_t, double>> measured;  // GPUs and samples a second, one entry a number of GPUs

  double remaining() const { return job->epochs - progress; }
  double done() const { return progress / job->epochs; }
  /// What the job reports. Curves are assumed, l(r) = l0·(0.1 + 0.9·exp(−k·r)) and, of the target accuracy, the part
  /// (1 − exp(−k·r))/(1 − exp(−k)), where r is the part that is done and k the job's own pace.
  double loss() const;
  double accuracy() const;
};

struct ClusterView {
  double now = 0;
  const JobPlacement& placement;
  std::span<const JobState* const> jobs;  // that came and have not ended, in order of arrival
  JobRates& rates;
};

/// How a policy changes the GPUs of a running job: from a checkpoint in new processes, or between two steps.
enum class Rescaling : std::uint8_t { Restart, InPlace };
/// Whether the batch follows the GPUs (`elastic_batch`) or stays that of the GPUs the job asked for.
enum class Batches : std::uint8_t { Requested, Elastic };

/// Decides who has which GPUs. Asked behind every arrival, end, and epoch of a job, and when it wants to be.
class ClusterScheduler {
 public:
  virtual ~ClusterScheduler() = default;
  virtual JobPlacement decide(const ClusterView& view) = 0;
  /// When it wants to be asked although nothing happened; not before now.
  virtual std::optional<double> next_look(const ClusterView&) { return {}; }
  virtual void ended(const JobState&) {}
};

/// What policies are made from.
struct PolicyInputs {
  const JobFileOptions& options;
  const JobSet& jobs;
  std::uint64_t seed = 1;
};

struct ClusterPolicy {
  std::string_view name, summary;
  Rescaling rescaling;
  Batches batches;
  std::unique_ptr<ClusterScheduler> (*make)(const PolicyInputs& inputs);
};

/// All policies, one line each in policies.cpp.
std::span<const ClusterPolicy> cluster_policies();
/// Throws UserError that names those there are.
const ClusterPolicy& find_cluster_policy(std::string_view name);

/// A job and how many GPUs it is to have.
using Grant = std::pair<std::int64_t, std::int64_t>;
/// The placement in which exactly these jobs have so many GPUs, together no more than there are. Who has GPUs keeps
/// them, the first of them where it is to have fewer; others come from the first that are free.
JobPlacement placed(const JobPlacement& now, const std::vector<Grant>& grants);

std::unique_ptr<ClusterScheduler> make_fifo(const PolicyInputs& inputs);
std::unique_ptr<ClusterScheduler> make_srtf(const PolicyInputs& inputs);
std::unique_ptr<ClusterScheduler> make_tiresias(const PolicyInputs& inputs);
std::unique_ptr<ClusterScheduler> make_optimus_jct(const PolicyInputs& inputs);
std::unique_ptr<ClusterScheduler> make_ones(const PolicyInputs& inputs);

}  // namespace orrery
