// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/expert_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/option_error.hpp"
#include "sim/base/shuffle.hpp"
#include "sim/strategy/model_parts.hpp"

namespace orrery {
namespace {

void check_shares(const std::string& key, const std::vector<double>& shares, const MoE& layer) {
  if (shares.size() != layer.experts.size())
    throw OptionError{{key},
                      fmt::format("{} shares are for {} experts", shares.size(), layer.experts.size()),
                      "give one for each expert of a layer"};
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  const double most = *std::max_element(shares.begin(), shares.end());
  if (sum <= 0) throw OptionError{{key}, "shares of experts add up to 0", "some expert is chosen"};
  if (most * double(layer.top_k) > sum * (1 + 1e-9))
    throw OptionError{{key},
                      fmt::format("an expert has {:.4g} of all choices, and a token makes {} different ones",
                                  most / sum, layer.top_k),
                      fmt::format("a share can be at most 1/{} of their sum", layer.top_k)};
}

}  // namespace

ExpertLayout::ExpertLayout(std::vector<double> shares, ExpertPlaces places)
    : shares_{std::move(shares)}, places_{std::move(places)}, replicas_(shares_.size(), 0) {
  for (const auto& p : places_)
    for (const HeldExpert& h : p) replicas_[static_cast<std::size_t>(h.expert)] += h.replicas;
}

std::int64_t ExpertLayout::most_held() const {
  std::size_t most = 0;
  for (const auto& p : places_) most = std::max(most, p.size());
  return static_cast<std::int64_t>(most);
}

std::vector<std::int64_t> ExpertLayout::holders(std::int64_t expert) const {
  std::vector<std::int64_t> out;
  for (std::int64_t r = 0; r < ranks(); ++r)
    if (std::any_of(held(r).begin(), held(r).end(), [&](const HeldExpert& h) { return h.expert == expert; }))
      out.push_back(r);
  return out;
}

double ExpertLayout::load(std::int64_t place) const {
  double sum = 0;
  for (const HeldExpert& h : held(place)) sum += part(h);
  return sum;
}

double ExpertLayout::imbalance() const {
  double most = 0;
  for (std::int64_t r = 0; r < ranks(); ++r) most = std::max(most, load(r));
  return most * double(ranks());
}

double ExpertLayout::skew(std::int64_t place) const {
  double most = 0, least = 1, sum = 0;
  for (const HeldExpert& h : held(place)) {
    const double rows = part(h);
    most = std::max(most, rows), least = std::min(least, rows), sum += rows;
  }
  return most == least ? 1 : most * double(held(place).size()) / sum;
}

/// A rank gets load of the choices of n − 1 others, and sends all of its own but the load that it keeps.
double ExpertLayout::busiest() const {
  if (is_even() || ranks() == 1) return 1;
  const auto n = double(ranks());
  double most = 0;
  for (std::int64_t r = 0; r < ranks(); ++r) most = std::max({most, n * load(r), n / (n - 1) * (1 - load(r))});
  return most;
}

bool ExpertLayout::is_even() const {
  if (std::all_of(places_.begin(), places_.end(), [&](const auto& p) { return p == places_.front(); })) return true;
  const bool equal = std::all_of(shares_.begin(), shares_.end(), [&](double s) { return s == shares_.front(); });
  return equal && std::all_of(places_.begin(), places_.end(), [&](const auto& p) {
           return p.size() == places_.front().size() &&
                  std::all_of(p.begin(), p.end(), [&](const HeldExpert& h) { return replicas(h.expert) == 1; });
         });
}

std::vector<double> at_most_once(std::vector<double> shares, std::int64_t top_k) {
  const double most = 1 / double(top_k);
  std::vector<bool> full(shares.size(), false);
  for (bool again = true; again;) {
    again = false;
    double free = 1, sum = 0;
    for (std::size_t e = 0; e < shares.size(); ++e) (full[e] ? free : sum) += full[e] ? -most : shares[e];
    for (std::size_t e = 0; e < shares.size(); ++e) {
      shares[e] = full[e] ? most : shares[e] * free / sum;
      if (full[e] || shares[e] <= most * (1 + 1e-12)) continue;
      full[e] = again = true;
    }
  }
  return shares;
}

std::vector<double> expert_shares(const RoutingOptions& routing, const MoE& layer, int block) {
  const std::size_t n = layer.experts.size();
  if (routing.is_even()) return std::vector<double>(n, 1 / double(n));
  std::vector<double> shares = routing.shares;
  if (shares.empty()) {
    for (std::size_t k = 0; k < n; ++k) shares.push_back(std::pow(double(k + 1), -routing.skew));
    Random random{static_cast<std::uint64_t>(routing.seed), static_cast<std::uint64_t>(block)};
    if (routing.seed != 0) shuffle(shares, random);
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& s : shares) s /= sum;
  return at_most_once(std::move(shares), layer.top_k);
}

ExpertLayout whole_layout(std::vector<double> shares, std::int64_t ranks) {
  const auto n = static_cast<std::int64_t>(shares.size());
  ExpertPlaces places(static_cast<std::size_t>(ranks));
  for (std::int64_t e = 0; e < n; ++e) places[static_cast<std::size_t>(e / (n / ranks))].push_back({e, 1});
  return {std::move(shares), std::move(places)};
}

void check_routing(const Model& model, const TrainOptions& train) {
  const RoutingOptions& r = train.routing;
  if (r.seed != 0 && r.skew == 0)
    throw OptionError{{"routing.seed"}, "routing has a seed and no skew", "set skew, or leave the seed out"};
  if (r.is_even() && r.placed_by.empty()) return;
  if (!has_experts(model))
    throw OptionError{
        {"routing"}, fmt::format("routing is for models of experts, and {} has none", model.name), "leave it out"};
  if (r.skew > 0 && !r.shares.empty())
    throw OptionError{{"routing.skew"}, "routing has a skew and shares", "leave one of them out"};
  if (train.capacity_factor > 0)
    throw OptionError{{"routing", "capacity_factor"},
                      "with capacity_factor experts compute equally many rows, whichever are chosen",
                      "leave one of them out"};
  for_each_experts(model, [&](int, const MoE& m) {
    if (!r.shares.empty()) check_shares("routing.shares", r.shares, m);
    if (!r.placed_by.empty()) check_shares("routing.placed_by", r.placed_by, m);
  });
}

}  // namespace orrery
