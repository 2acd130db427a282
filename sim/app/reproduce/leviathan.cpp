// SPDX-License-Identifier: Apache-2.0
// Fast inference from transformers via speculative decoding, Leviathan and others, arXiv 2211.17192: tokens of a round
// by their formula beside the program's rounds under drawn acceptance, and the speed-ups of their table 2 (T5-XXL on
// one TPU-v4, batch 1) from the acceptance and chain length that the table gives. The cost of a drafter's pass is not
// in the table: it is inferred from the greedy row of a drafter and used for the row with a temperature. Acceptance is
// printed with two digits and speed-ups with one: what rounding may have taken from both rows is carried along.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/app/speculation_study.hpp"

namespace orrery::papers::leviathan {
namespace {

constexpr const char* kTable = "arXiv 2211.17192, table 2";

/// E = (1 − α^(γ+1))/(1 − α)
double chain_tokens(double alpha, double gamma) { return (1 - std::pow(alpha, gamma + 1)) / (1 - alpha); }

/// A row of the table: one task, drafter and temperature.
struct Measured {
  double gamma = 0, alpha = 0, speedup = 0;

  /// Tokens of a round over the speed-up: 1 + γ·c, the time of a round over that of a step. `side`: 0 as printed; 1 and
  /// -1 where both numbers were rounded so that it comes out as large or small as can be.
  double round(double side) const { return chain_tokens(alpha + 0.005 * side, gamma) / (speedup - 0.05 * side); }
  /// The cost of a drafter's pass over one of the model.
  double cost(double side) const { return (round(side) - 1) / gamma; }
  /// The speed-up where a drafter's pass costs so much, E/(γ·c + 1).
  double predicted(double cost, double side) const {
    return chain_tokens(alpha + 0.005 * side, gamma) / (gamma * cost + 1);
  }
};
struct Row {
  const char *task, *drafter;
  Measured greedy, drawn;  // temperature 0 and 1

  double error() const { return drawn.predicted(greedy.cost(0), 0) / drawn.speedup - 1; }
  /// The least error that the digits of the table allow; 0 where both intervals meet.
  double least_error() const {
    const double low = drawn.predicted(greedy.cost(1), -1), high = drawn.predicted(greedy.cost(-1), 1);
    if (low > drawn.speedup + 0.05) return low / (drawn.speedup + 0.05) - 1;
    if (high < drawn.speedup - 0.05) return high / (drawn.speedup - 0.05) - 1;
    return 0;
  }
};
constexpr Row kRows[] = {
    {"translation", "T5-small", {7, .75, 3.4}, {7, .62, 2.6}}, {"translation", "T5-base", {7, .80, 2.8}, {5, .68, 2.4}},
    {"translation", "T5-large", {7, .82, 1.7}, {3, .71, 1.4}}, {"summaries", "T5-small", {5, .65, 3.1}, {5, .53, 2.3}},
    {"summaries", "T5-base", {5, .73, 3.0}, {3, .55, 2.2}},    {"summaries", "T5-large", {3, .74, 2.2}, {3, .56, 1.7}}};
constexpr double kWithin = 0.1;

}  // namespace

Reproduction reproduce(const Reproducer& reproducer) {
  Reproduction out{
      {}, {"cost of a draft", "greedy", "temperature 1, paper", "temperature 1", "off by %", "at least %"}, {}};
  for (const double alpha : {0.5, 0.6, 0.7, 0.8, 0.9})
    for (const int gamma : {1, 2, 4, 8}) {
      reproducer.pause();
      const SpeculateOptions o =
          speculate_options(fmt::format("{{method: draft, depth: {}, accuracy: {{hits: [[{}]]}}}}", gamma, alpha));
      const double formula = chain_tokens(alpha, gamma), rounds = drawn_tokens_per_round(o, 7, 100'000);
      out.claims.push_back({fmt::format("tokens of a round, alpha {} gamma {}", alpha, gamma),
                            "arXiv 2211.17192, eq. 1", formula, rounds, "tokens", 0.01,
                            "100,000 rounds of the program"});
    }
  double sum = 0, worst = 0, near = 0;
  for (const Row& r : kRows) {
    sum += std::abs(r.error()), worst = std::max(worst, std::abs(r.error()));
    near += std::abs(r.least_error()) <= kWithin;
    out.ablations.push_back({fmt::format("{}, {}", r.task, r.drafter),
                             {r.greedy.cost(0), r.greedy.speedup, r.drawn.speedup,
                              r.drawn.predicted(r.greedy.cost(0), 0), 100 * r.error(), 100 * r.least_error()}});
  }
  const auto rows = double(std::size(kRows));
  out.claims.push_back({"speed-ups with temperature 1 from the greedy ones, mean error", kTable, 1, 1 + sum / rows,
                        "factor", kWithin,
                        fmt::format("all six rows below; the worst is off by {:.1f} %", 100 * worst)});
  out.claims.push_back({"rows within 10 % as far as the digits of the table tell", kTable, rows, near, "rows", 1e-9,
                        "acceptance is rounded to 0.01, speed-ups to 0.1"});
  return out;
}

}  // namespace orrery::papers::leviathan
