// SPDX-License-Identifier: Apache-2.0
#include "sim/program/expert_balancer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery {

DriftingShares::DriftingShares(const DriftOptions& options)
    : o_{options}, random_{options.seed}, logits_(static_cast<std::size_t>(options.experts)) {
  for (double& l : logits_) l = random_.normal(0, o_.spread);
}

std::vector<double> DriftingShares::next() {
  std::vector<double> shares;
  double sum = 0;
  for (const double l : logits_) sum += shares.emplace_back(std::exp(l));
  for (double& s : shares) s /= sum;
  const double kept = std::exp(-1 / o_.correlation), fresh = o_.spread * std::sqrt(1 - kept * kept);
  for (double& l : logits_) l = kept * l + random_.normal(0, fresh);
  return at_most_once(std::move(shares), o_.top_k);
}

ExpertBalancer::ExpertBalancer(ExpertPlaces places, const BalancerOptions& options)
    : o_{options}, places_{std::move(places)} {}

void ExpertBalancer::commit() {
  places_ = std::move(move_->to);
  move_.reset();
  ++commits_;
}

/// What was planned in an iteration holds from the next one on at the earliest.
BalancedIteration ExpertBalancer::step(const std::vector<double>& shares) {
  BalancedIteration out;
  if (move_ && o_.beside <= 0) out.awaited = std::llround(std::exchange(move_->left, 0));
  if (move_ && move_->left <= 0) commit();
  const ExpertLayout now{shares, places_};
  out.imbalance = now.imbalance();
  if (move_) {
    move_->left -= o_.beside;
  } else if (iteration_ % o_.period == 0 && out.imbalance > o_.threshold) {
    ExpertPlaces to = rebalance(now, o_.slots, o_.costs);
    const std::vector<std::int64_t> fetched = fetched_experts(places_, to);
    if (to != places_) move_ = Move{std::move(to), double(*std::max_element(fetched.begin(), fetched.end()))};
  }
  ++iteration_;
  return out;
}

}  // namespace orrery
