// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/program/cluster/job.hpp"

namespace orrery {

/// Seconds of a data-parallel step: a·B/n of arithmetic, and s·2(n − 1)/n of a ring that exchanges gradients. Leaves
/// out that small batches use a GPU badly, and where the GPUs are.
struct StepLaw {
  double sample = 0, exchange = 0;  // a and s

  double seconds(std::int64_t gpus, std::int64_t batch) const {
    return sample * double(batch) / double(gpus) + exchange * 2 * double(gpus - 1) / double(gpus);
  }
};
/// Least squares of relative errors over the points of a template, both at least 0.
StepLaw fit_step_law(const JobTemplate& type);

/// Seconds of a step of `gpus` GPUs, side by side from the first of a node on, with `batch` samples each.
using StepSeconds = std::function<double(const JobTemplate& type, std::int64_t gpus, std::int64_t batch)>;

/// How fast jobs train: by the law of their template's rates, or by steps that are predicted. Predictions are asked
/// for once, for 1, 2, 4, … GPUs of a node and 1, 2, 4, … whole nodes, and whole batches; in between they are
/// interpolated. A GPU computes at most the template's batch at once: larger ones one after another before gradients
/// are exchanged.
class JobRates {
 public:
  /// `predict` may be empty where no template names a model.
  JobRates(std::vector<JobTemplate> templates, std::int64_t gpus, std::int64_t gpus_per_node, StepSeconds predict = {});

  /// Samples a second with `batch` samples a step, of all GPUs together.
  double samples_per_second(std::size_t type, std::int64_t gpus, std::int64_t batch);
  /// Epochs a second that count, of those at the batch of one GPU.
  double epochs_per_second(const Job& job, std::int64_t gpus, std::int64_t batch);
  const JobTemplate& type(const Job& job) const { return templates_[job.type]; }
  const std::vector<JobTemplate>& types() const { return templates_; }

 private:
  double predicted(std::size_t type, std::int64_t gpus, std::int64_t batch);
  double between_batches(std::size_t type, std::int64_t gpus, double batch);
  double asked(std::size_t type, std::int64_t gpus, std::int64_t batch);

  using Key = std::tuple<std::size_t, std::int64_t, std::int64_t>;
  std::vector<JobTemplate> templates_;
  std::vector<StepLaw> laws_;
  std::vector<std::int64_t> sizes_;  // numbers of GPUs that are predicted
  StepSeconds predict_;
  std::map<Key, double> steps_, rates_;
};

}  // namespace orrery
