// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/base/units.hpp"
#include "sim/strategy/remat.hpp"

namespace orrery {

/// The schedule of least cost under which no more than `budget` bytes are there at a time (Checkmate, arXiv
/// 1910.02653): minimise Σ R·cost with R[t][t] = 1,
///   R[t][j] ≤ R[t][i] + S[t][i] for each edge (i, j),   S[t+1][i] ≤ S[t][i] + R[t][i],
///   U[t][0] = R[t][0]·m_0 + Σ S[t][i]·m_i,   U[t][k+1] = U[t][k] + R[t][k+1]·m_{k+1} − Σ_{i → k, i = k}
///   FREE[t][i,k]·m_i, U[t][k] + R[t][k]·extra_k ≤ budget, and FREE[t][i,k] = 1 iff k is made, i is not kept and no
///   later node of the stage reads it.
/// Nothing when no schedule fits, or none was found in time.
std::optional<RematSchedule> checkmate(const RematGraph& graph, std::int64_t budget, Seconds limit);

/// The same for strategies.
class CheckmateSolver final : public RematSolver {
 public:
  explicit CheckmateSolver(Seconds limit) : limit_{limit} {}
  std::optional<RematSchedule> solve(const RematGraph& graph, std::int64_t budget) const override {
    return checkmate(graph, budget, limit_);
  }

 private:
  Seconds limit_;
};

}  // namespace orrery
