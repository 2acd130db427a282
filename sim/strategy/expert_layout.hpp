// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/model/model.hpp"
#include "sim/strategy/workload.hpp"

namespace orrery {

/// An expert on a rank, with as many replicas there as have a part of its rows each; they share its weights.
struct HeldExpert {
  std::int64_t expert = 0, replicas = 1;
  bool operator==(const HeldExpert&) const = default;
};

/// By rank of those over which experts lie: what it has, in order of the experts.
using ExpertPlaces = std::vector<std::vector<HeldExpert>>;

/// Which ranks have the experts of a layer, and how many of all rows come to each. Replicas of an expert, wherever they
/// lie, get equal parts of its rows.
class ExpertLayout {
 public:
  ExpertLayout() = default;
  /// Shares of all choices by expert, whose sum is 1.
  ExpertLayout(std::vector<double> shares, ExpertPlaces places);

  const std::vector<double>& shares() const { return shares_; }
  const ExpertPlaces& places() const { return places_; }
  std::int64_t ranks() const { return static_cast<std::int64_t>(places_.size()); }
  std::int64_t experts() const { return static_cast<std::int64_t>(shares_.size()); }
  const std::vector<HeldExpert>& held(std::int64_t place) const { return places_[static_cast<std::size_t>(place)]; }
  /// Experts of the rank that has most of them.
  std::int64_t most_held() const;
  std::int64_t replicas(std::int64_t expert) const { return replicas_[static_cast<std::size_t>(expert)]; }
  std::vector<std::int64_t> holders(std::int64_t expert) const;
  /// The part of all choices that comes to a rank.
  double load(std::int64_t place) const;
  /// The largest load over the mean.
  double imbalance() const;
  /// Rows of the fullest expert of a rank over the mean of those that it has.
  double skew(std::int64_t place) const;
  /// What decides how long an exchange takes, where each rank has as many choices: the rows that the busiest rank gets
  /// from others, or sends to them, over those of even experts. An exchange of so many more bytes takes as long.
  double busiest() const;
  /// Whether all ranks have the same experts, or equally many rows of experts that differ in their number alone.
  bool is_even() const;

 private:
  /// The part of all choices that goes to what a rank has of an expert.
  double part(const HeldExpert& h) const {
    return shares_[static_cast<std::size_t>(h.expert)] * double(h.replicas) / double(replicas(h.expert));
  }

  std::vector<double> shares_;
  ExpertPlaces places_;
  std::vector<std::int64_t> replicas_;
};

/// How often each expert of a layer is chosen, of all choices: `top_k` different ones by a token.
std::vector<double> expert_shares(const RoutingOptions& routing, const MoE& layer, int block);

/// As they were, but for experts beyond 1/top_k: a token chooses none twice. What these have more goes to the others,
/// in proportion.
std::vector<double> at_most_once(std::vector<double> shares, std::int64_t top_k);

/// E / ranks experts on each rank, in their order.
ExpertLayout whole_layout(std::vector<double> shares, std::int64_t ranks);

/// Throws UserError where shares cannot be those of a model's experts.
void check_routing(const Model& model, const TrainOptions& train);

}  // namespace orrery
