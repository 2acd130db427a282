// SPDX-License-Identifier: Apache-2.0
// Experts whose heat drifts from iteration to iteration, and replicas that follow it (FlexMoE, arXiv 2304.03946).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/strategy/expert_placement.hpp"

namespace orrery {

/// How the shares of a layer's experts drift. No published trace is known: these are synthetic.
struct DriftOptions {
  std::int64_t experts = 64, top_k = 1;
  double spread = 1.5;       // standard deviation of the logits
  double correlation = 300;  // iterations after which a logit remembers 1/e of what it was
  std::uint64_t seed = 1;
};

/// Shares are a softmax over logits that are Ornstein-Uhlenbeck processes around 0, each on its own:
/// θ(t + 1) = a·θ(t) + spread·√(1 − a²)·N(0, 1), a = exp(−1/correlation).
class DriftingShares {
 public:
  explicit DriftingShares(const DriftOptions& options);
  /// Of the next iteration.
  std::vector<double> next();

 private:
  DriftOptions o_;
  Random random_;
  std::vector<double> logits_;
};

/// When experts are placed anew, and how.
struct BalancerOptions {
  std::int64_t slots = 2;
  double threshold = 1.2;    // of the largest load over the mean
  std::int64_t period = 50;  // iterations from one look at the loads to the next
  /// Experts that a rank fetches beside an iteration; 0: training waits until all are there.
  double beside = 0;
  PlacementCosts costs;
};

/// What an iteration runs with.
struct BalancedIteration {
  double imbalance = 1;      // of the placement that holds, under the shares of this iteration
  std::int64_t awaited = 0;  // experts that the rank that fetches most fetches first, while training waits
};

/// Looks at the loads, plans where they are too uneven, moves weights and states, and then, between two iterations,
/// puts the plan into force; looks again when it holds.
class ExpertBalancer {
 public:
  ExpertBalancer(ExpertPlaces places, const BalancerOptions& options);
  /// The next iteration, which has these shares.
  BalancedIteration step(const std::vector<double>& shares);
  const ExpertPlaces& places() const { return places_; }
  std::int64_t commits() const { return commits_; }

 private:
  struct Move {
    ExpertPlaces to;
    double left = 0;  // experts that the rank that fetches most has still to fetch
  };
  void commit();

  BalancerOptions o_;
  ExpertPlaces places_;
  std::optional<Move> move_;
  std::int64_t iteration_ = 0, commits_ = 0;
};

}  // namespace orrery
