// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/cluster/job_options.hpp"

namespace orrery {

/// One training job. Times are seconds from the first arrival on.
struct Job {
  std::int64_t id = 0;  // in order of arrival, from 0
  double arrival = 0;
  std::size_t type = 0;  // of the templates
  std::int64_t gpus = 1, samples = 1;
  double epochs = 1;  // until its target is met, at the batch of one GPU
  double pace = 3;    // how fast its loss falls, see JobState::loss
};

/// Jobs with what they have in common.
struct JobSet {
  std::vector<JobTemplate> templates;  // by name
  std::vector<Job> jobs;               // in order of arrival
};

/// Samples of a step on `gpus` GPUs: as many times those of one as the learning rate may grow, at most. Whoever does
/// not change batches trains with that of the GPUs that the job asked for.
std::int64_t elastic_batch(const JobTemplate& type, std::int64_t gpus);
/// How many times the epochs of the batch of one GPU a batch takes, (s + B)/(s + b): of SGD whose gradients have the
/// noise scale s (arXiv 1812.06162). Leaves out that s grows as training goes on.
double epochs_factor(const JobTemplate& type, std::int64_t batch);

/// The jobs that a file lists, names or has drawn. `document`: it as read, for the places of what is wrong; `seed`: in
/// place of the file's. Throws UserError: no jobs, or jobs of two sources, unknown templates, arrivals that go back in
/// time, templates without rates or model, more GPUs than the cluster's.
JobSet make_jobs(const JobFileOptions& options, const Node& document, std::int64_t cluster_gpus, std::int64_t seed);

/// `count` jobs of these templates, drawn.
std::vector<Job> drawn_jobs(const std::vector<JobTemplate>& templates, const DrawnJobs& options, std::uint64_t seed);

}  // namespace orrery
