// SPDX-License-Identifier: Apache-2.0
#include "sim/search/checkmate.hpp"

#include <algorithm>

#include "sim/search/mip.hpp"

namespace orrery {
namespace {

class CheckmateProgram {
 public:
  CheckmateProgram(const RematGraph& graph, std::int64_t budget)
      : g_{graph}, n_{graph.size()}, budget_{double(budget)} {
    readers_.resize(static_cast<std::size_t>(n_));
    sources_.resize(static_cast<std::size_t>(n_));
    for (const auto& [from, to] : g_.edges) {
      readers_[std::size_t(from)].push_back(to);
      sources_[std::size_t(to)].push_back(from);
    }
    add_choices();
    for (int t = 0; t < n_; ++t) add_stage(t);
  }

  std::optional<RematSchedule> solve(Seconds limit) const {
    const MipSolution s = orrery::solve(mip_, limit);
    if (s.x.empty()) return std::nullopt;
    RematSchedule out{.cost = s.value, .is_optimal = s.status == MipStatus::Optimal};
    for (int t = 0; t < n_; ++t) {
      out.made.emplace_back();
      out.kept.emplace_back();
      for (int i = 0; i < n_; ++i) {
        out.made.back().push_back(i <= t && s.x[std::size_t(made(t, i))] > 0.5);
        out.kept.back().push_back(i < t && s.x[std::size_t(kept(t, i))] > 0.5);
      }
    }
    return out;
  }

 private:
  int made(int t, int i) const { return made_[std::size_t(t)][std::size_t(i)]; }
  int kept(int t, int i) const { return kept_[std::size_t(t)][std::size_t(i)]; }
  double bytes(int i) const { return double(g_.bytes[std::size_t(i)]) / budget_; }  // in parts of the budget

  void add_choices() {
    for (int t = 0; t < n_; ++t) {
      made_.emplace_back();
      kept_.emplace_back();
      for (int i = 0; i <= t; ++i)
        made_.back().push_back(mip_.add(
            {.low = i == t ? 1.0 : 0.0, .high = i < t && g_.is_once(i) ? 0.0 : 1.0, .cost = g_.cost[std::size_t(i)]}));
      for (int i = 0; i < t; ++i) kept_.back().push_back(mip_.add_binary());
    }
  }

  void add_stage(int t) {
    for (const auto& [from, to] : g_.edges)
      if (to <= t) mip_.at_most({{made(t, to), 1}, {made(t, from), -1}, {kept(t, from), -1}}, 0);
    for (int i = 0; t > 0 && i < t; ++i) {
      Mip::Terms terms{{kept(t, i), 1}, {made(t - 1, i), -1}};
      if (i < t - 1) terms.emplace_back(kept(t - 1, i), -1);
      mip_.at_most(std::move(terms), 0);
    }
    // U[t][k] as a sum of what is kept, made and freed so far in the stage.
    Mip::Terms used;
    for (int i = 0; i < t; ++i) used.emplace_back(kept(t, i), bytes(i));
    for (int k = 0; k <= t; ++k) {
      if (k < t && g_.is_once(k)) continue;
      used.emplace_back(made(t, k), bytes(k));
      Mip::Terms now = used;
      now.back().second += double(g_.extra_of(k)) / budget_;
      mip_.at_most(std::move(now), 1);
      for (const int i : sources_[std::size_t(k)]) used.emplace_back(add_free(t, i, k), -bytes(i));
      used.emplace_back(add_free(t, k, k), -bytes(k));
    }
  }

  /// 1 − FREE ≤ h and κ·(1 − FREE) ≥ h, where h = (1 − R[t][k]) + S[t+1][i] + Σ_{i → j, j > k} R[t][j] and κ its most.
  int add_free(int t, int i, int k) {
    const int free = mip_.add_binary();
    Mip::Terms hazards{{made(t, k), -1}};
    double most = 2;
    if (t + 1 < n_) hazards.emplace_back(kept(t + 1, i), 1);
    for (const int j : readers_[std::size_t(i)])
      if (j > k && j <= t) {
        hazards.emplace_back(made(t, j), 1);
        ++most;
      }
    Mip::Terms low = hazards, high = hazards;
    low.emplace_back(free, 1);
    mip_.at_least(std::move(low), 0);  // h + FREE ≥ 1, and h holds a 1 of its own
    high.emplace_back(free, most);
    mip_.at_most(std::move(high), most - 1);
    return free;
  }

  const RematGraph& g_;
  int n_;
  double budget_;
  Mip mip_;
  std::vector<std::vector<int>> made_, kept_, readers_, sources_;
};

}  // namespace

std::optional<RematSchedule> checkmate(const RematGraph& graph, std::int64_t budget, Seconds limit) {
  if (graph.size() == 0) return RematSchedule{.is_optimal = true};
  return CheckmateProgram{graph, budget}.solve(limit);
}

}  // namespace orrery
