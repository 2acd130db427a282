// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/program/cluster/cluster_scheduler.hpp"

namespace orrery {

/// What a job looked like when so many of its epochs were over.
struct ProgressRecord {
  double samples = 0;  // of an epoch
  double initial_loss = 0, epochs = 0, loss = 0, accuracy = 0;
  double done = 0;  // the part of all epochs; known when the job has ended
};

/// ONES' predictor: the part that is done is Beta(α, β), α the epochs so far and β = 1 + ReLU of a network of 64 tanh
/// units on five features (the logarithm of an epoch's samples, initial loss, epochs, part by which the loss fell,
/// accuracy). It learns by Adam (rate 1e-4, weight decay 1e-4, batches of 8) from the likelihood of what jobs that have
/// ended logged (arXiv 2108.03645, artifact). Its last constant starts at the mean of the epochs that were to come, so
/// that the ReLU is not dead from the start.
class ProgressPredictor {
 public:
  ProgressPredictor(const OnesOptions& options, std::uint64_t seed);
  ~ProgressPredictor();
  ProgressPredictor(const ProgressPredictor&) = delete;
  ProgressPredictor& operator=(const ProgressPredictor&) = delete;

  /// Records of a job that has ended.
  void add(const std::vector<ProgressRecord>& records);
  void learn();
  double beta(const ProgressRecord& now) const;
  /// Mean over records of −log of the density of what was done.
  double loss(const std::vector<ProgressRecord>& records) const;

 private:
  struct Network;
  struct Sample;
  const OnesOptions options_;
  Random random_;
  std::vector<Sample> samples_;  // of all records
  std::unique_ptr<Network> network_;
};

/// Derivative of the logarithm of the gamma function for x > 0, by recurrence and its asymptotic series.
double digamma(double x);

/// Samples a second on `gpus` GPUs by what was measured: on the line between the two measured numbers of GPUs around,
/// of which none with no speed is one, or through the last two. 0 where nothing was measured.
double estimated_rate(const JobState& job, std::int64_t gpus);

}  // namespace orrery
