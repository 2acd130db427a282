// SPDX-License-Identifier: Apache-2.0
// OptEx, Shu and others, arXiv 2402.11427: how many times fewer iterations in turn Adam needs where each computes N
// gradients side by side. The paper says at least √N and at most about N, and of numbers it has curves alone: those
// beside ours are an earlier check of its algorithm by us, in another program. Settings of both: Matérn 5/2, noise
// 1e-3, points over the mean root of their norms (github.com/youyve/OptEx); 2,000 variables, Adam at 0.01, what 120
// plain updates come to, the best of 4 length scales and 3 histories. Assumed: starts, drawn from a normal
// distribution; 5 of them, as many as the paper's runs. Below it what an iteration takes on H100s of a DGX, by its
// plan, with passes over memory at the rate of elementwise ops, and from which acceleration on it pays.
#include <fmt/format.h>

#include <cmath>

#include "sim/app/reproduce/optex_study.hpp"
#include "sim/app/reproduce/reproduction.hpp"

namespace orrery::papers::optex {
namespace {

constexpr const char* kPaper = "arXiv 2402.11427, abstract";
constexpr const char* kCheck = "our own check of the algorithm of arXiv 2402.11427";
constexpr std::int64_t kUpdates = 120, kPoints[] = {2, 4, 5, 8};
const OptexSettings kSettings{{0.1, 1, 10, 100}, {10, 20, 40}, 5};

struct Row {
  TestFunction function;
  double speedups[std::size(kPoints)];
};
constexpr Row kRows[] = {{TestFunction::Sphere, {2.00, 4.00, 4.80, 7.50}},
                         {TestFunction::Rosenbrock, {2.00, 3.75, 4.62, 7.06}},
                         {TestFunction::Ackley, {1.90, 2.93, 3.33, 3.64}}};

/// Step of a GPT-2, `batch` samples of 256 tokens for each point.
double step(const Reproducer& r, std::int64_t layers, std::int64_t hidden, std::int64_t batch, std::int64_t points) {
  return r
      .predict(fmt::format("model: {{model_type: gpt2, n_embd: {}, n_layer: {}, n_head: {}, n_positions: 256, "
                           "vocab_size: 50257}}\n"
                           "cluster: dgx_h100\n"
                           "strategy: [{{optex: {{parallel_iterations: {}, history: 20}}}}]\n"
                           "workload: {{train: {{batch: {}, sequence: 256, dtype: f32}}}}\n",
                           hidden, layers, hidden / 64, points, batch * points))
      .report.step;
}

/// What an iteration takes, and how much faster training is, with the accelerations of two functions.
void add_steps(const Reproducer& r, const std::vector<double>& smooth, const std::vector<double>& rough,
               Reproduction& out) {
  struct Size {
    const char* name;
    std::int64_t layers, hidden;
  };
  for (const Size& size : {Size{"GPT-2 of 4 layers, 256 wide", 4, 256}, Size{"of 12 layers, 768 wide", 12, 768}})
    for (const std::int64_t batch : {1, 16}) {
      const double plain = step(r, size.layers, size.hidden, batch, 1);
      for (std::size_t i = 0; i < std::size(kPoints); ++i) {
        if (kPoints[i] == 5) continue;
        const double all = step(r, size.layers, size.hidden, batch, kPoints[i]), costs = all / plain;
        out.ablations.push_back({fmt::format("{}, {} samples a point, N {}", size.name, batch, kPoints[i]),
                                 {1e3 * plain, 1e3 * all, costs, smooth[i] / costs, rough[i] / costs}});
      }
    }
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  Reproduction out;
  std::vector<std::vector<double>> ours;
  double cells = 0, above = 0, below = 0;
  for (const Row& row : kRows) {
    ours.emplace_back();
    for (std::size_t i = 0; i < std::size(kPoints); ++i) {
      r.pause();
      const double n = double(kPoints[i]),
                   s = OptexStudy{.function = row.function}.speedup(kUpdates, kPoints[i], kSettings);
      ours.back().push_back(s);
      ++cells, above += s >= std::sqrt(n), below += s <= n;
      out.claims.push_back({fmt::format("fewer iterations on {}, N {}", name_of(row.function), kPoints[i]), kCheck,
                            row.speedups[i], s, "factor", 0.1, "best length scale and history, median of 5 starts"});
    }
  }
  out.claims.push_back({"cases with at least the root of N", kPaper, cells, above, "cases", 1e-9, "all of these"});
  out.claims.push_back({"cases with at most N", kPaper, cells, below, "cases", 1e-9, "all of these"});
  out.quantities = {"plain step, ms", "iteration, ms", "pays from a factor of", "faster, as sphere",
                    "faster, as Ackley"};
  add_steps(r, ours.front(), ours.back(), out);
  return out;
}

}  // namespace orrery::papers::optex
