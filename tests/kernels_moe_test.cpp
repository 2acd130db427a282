// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "kernels/host/indexing.hpp"
#include "kernels/host/moe_gate.hpp"
#include "kernels/host/moe_permute.hpp"
#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;
using Ids = std::vector<std::int32_t>;

namespace {

template <class T>
struct Gated {
  std::vector<T> scores, weights;
  Ids indices;

  Gated(GateArgs<T> args)
      : scores(poison<T>(args.tokens * args.experts)),
        weights(poison<T>(args.tokens * args.top_k)),
        indices(static_cast<std::size_t>(args.tokens * args.top_k), -7) {
    Workspace workspace{gate_workspace(args.experts, args.groups, sizeof(T))};
    args.scores = scores.data(), args.weights = weights.data(), args.indices = indices.data();
    args.workspace = workspace.data();
    run([&] { gate(args); });
    CHECK(workspace.intact());
  }
};

/// Maps of one routing.
struct Routed {
  Ids counts, offsets, row_of_choice, choice_of_row;

  explicit Routed(RouteArgs args) {
    const std::int64_t choices = args.tokens * args.top_k;
    counts.assign(static_cast<std::size_t>(args.experts), -7);
    offsets.assign(static_cast<std::size_t>(args.experts + 1), -7);
    row_of_choice.assign(static_cast<std::size_t>(choices), -7);
    choice_of_row.assign(
        static_cast<std::size_t>(args.layout == RouteLayout::Padded ? args.experts * args.groups * *args.capacity
                                                                    : choices),
        -7);
    args.counts = counts.data(), args.offsets = offsets.data();
    args.row_of_choice = row_of_choice.data(), args.choice_of_row = choice_of_row.data();
    run([&] { route(args); });
  }
};

}  // namespace

TEST_CASE("a softmax gate picks the largest scores, ties to the lower index", "[kernels]") {
  const Values logits{0, 1, 1, -1, 2, 2, 2, 2};
  const Gated<double> g{{.tokens = 2, .experts = 4, .top_k = 2, .normalise = true, .logits = logits.data()}};
  CHECK(g.indices == Ids{1, 2, 0, 1});
  CHECK(g.weights[0] == Approx(0.5));
  CHECK(g.scores[4] == Approx(0.25));
}

TEST_CASE("a selection bias changes the choice and not the weights", "[kernels]") {
  const Values logits{2, 1, 0, -1}, bias{-1, 0, 0, 1};
  const Gated<double> g{{.tokens = 1,
                         .experts = 4,
                         .top_k = 2,
                         .score = GateScore::Sigmoid,
                         .factor = 2.5,
                         .logits = logits.data(),
                         .selection_bias = bias.data()}};
  // σ = 0.881, 0.731, 0.5, 0.269; biased −0.119, 0.731, 0.5, 1.269
  CHECK(g.indices == Ids{3, 1});
  CHECK(g.weights[0] == Approx(2.5 / (1 + std::exp(1.0))));
  CHECK(g.weights[1] == Approx(2.5 / (1 + std::exp(-1.0))));
}

TEST_CASE("group-limited gates leave out experts of the other groups", "[kernels]") {
  // Groups (0,1), (2,3), (4,5): maxima 3, 2.5, 2.9; sums of the best two 3.1, 4.9, 3.0.
  const Values logits{3, 0.1, 2.5, 2.4, 2.9, 0.1};
  GateArgs<double> args{.tokens = 1, .experts = 6, .top_k = 2, .groups = 3, .top_groups = 1, .logits = logits.data()};
  CHECK(Gated<double>{args}.indices == Ids{0, 1});
  args.group_score = GroupScore::SumOfTop2;
  args.score = GateScore::Sigmoid;  // σ: 0.953+0.525, 0.924+0.917, 0.948+0.525
  CHECK(Gated<double>{args}.indices == Ids{2, 3});
  args.top_groups = 2;
  CHECK(Gated<double>{args}.indices == Ids{0, 2});
}

TEST_CASE("gradients of the gate equal differences", "[kernels]") {
  const std::int64_t tokens = 5, experts = 11, k = 3;
  for (const GateScore score : {GateScore::Softmax, GateScore::Sigmoid})
    for (const bool normalise : {false, true}) {
      INFO("seed 1, score " << int(score) << " normalise " << normalise);
      Values logits = random_values(tokens * experts, 1, -2, 2);
      const Values w = random_values(tokens * k, 2), ws = random_values(tokens * experts, 3);
      const auto args = [&] {
        return GateArgs<double>{.tokens = tokens,
                                .experts = experts,
                                .top_k = k,
                                .score = score,
                                .normalise = normalise,
                                .factor = 1.5,
                                .logits = logits.data()};
      };
      const Gated<double> g{args()};
      Values dlogits = poison(tokens * experts);
      run([&] {
        gate_backward<double>({.tokens = tokens,
                               .experts = experts,
                               .top_k = k,
                               .score = score,
                               .normalise = normalise,
                               .factor = 1.5,
                               .scores = g.scores.data(),
                               .indices = g.indices.data(),
                               .dweights = w.data(),
                               .dscores = ws.data(),
                               .dlogits = dlogits.data()});
      });
      CHECK(distance(dlogits, numeric_gradient(logits, [&] {
                       const Gated<double> x{args()};
                       return dot(x.weights, w) + dot(x.scores, ws);
                     })) < 1e-7);
    }
}

namespace {

/// A gate of every expert above a threshold.
struct Threshold {
  Values scores, weights;
  Ids indices;

  explicit Threshold(ThresholdGateArgs<double> args)
      : scores(poison(args.tokens * args.experts)),
        weights(poison(args.tokens * args.choices)),
        indices(static_cast<std::size_t>(args.tokens * args.choices), -7) {
    Workspace workspace{gate_workspace(args.experts, 1, sizeof(double))};
    args.scores = scores.data(), args.weights = weights.data(), args.indices = indices.data();
    args.workspace = workspace.data();
    run([&] { threshold_gate(args); });
    CHECK(workspace.intact());
  }
};

constexpr PhiloxKey kNoise{9, 4};

}  // namespace

TEST_CASE("a gate with a threshold visits the experts whose noisy softmax is above it", "[kernels]") {
  const Values logits{0.5, -1, 2, 0, 0, 1};
  const Ids numbers{7, 3};
  const bool plain = GENERATE(false, true), hard = GENERATE(false, true), listed = GENERATE(false, true);
  const std::int64_t choices = hard ? 1 : 3;
  const Threshold gate{{.tokens = 2,
                        .experts = 3,
                        .choices = choices,
                        .temperature = 0.7,
                        .threshold = 0.2,
                        .hard = hard,
                        .weighs_plain = plain,
                        .key = kNoise,
                        .first_token = 5,
                        .token_ids = listed ? numbers.data() : nullptr,
                        .logits = logits.data()}};
  for (std::int64_t t = 0; t < 2; ++t) {
    const std::int64_t number = listed ? numbers[std::size_t(t)] : 5 + t;
    Values noisy, scores;
    double sum = 0, plain_sum = 0;
    for (std::int64_t e = 0; e < 3; ++e) {
      const double u = philox_uniform(philox_word(kNoise, std::uint64_t(number * 3 + e)));
      sum += noisy.emplace_back(std::exp((logits[std::size_t(3 * t + e)] - std::log(-std::log(u))) / 0.7));
      plain_sum += scores.emplace_back(std::exp(logits[std::size_t(3 * t + e)]));
    }
    const double most = *std::max_element(noisy.begin(), noisy.end());
    std::size_t slot = std::size_t(t * choices);
    for (std::size_t e = 0; e < 3; ++e) {
      const double score = plain ? scores[e] / plain_sum : noisy[e] / sum;
      CHECK(gate.scores[std::size_t(3 * t) + e] == Approx(score));
      if (hard ? noisy[e] < most : noisy[e] / sum <= 0.2) continue;
      CHECK(gate.indices[slot] == std::int32_t(e));
      CHECK(gate.weights[slot++] == Approx(score));
    }
    for (; slot < std::size_t((t + 1) * choices); ++slot) {
      CHECK(gate.indices[slot] == -1);
      CHECK(gate.weights[slot] == 0);
    }
  }
}

TEST_CASE("gradients of a gate with a threshold equal differences while no expert comes or goes", "[kernels]") {
  const std::int64_t tokens = 6, experts = 8;
  const bool plain = GENERATE(false, true), hard = GENERATE(false, true);
  const std::int64_t choices = hard ? 1 : experts;
  const double temperature = 0.6;
  Values logits = random_values(tokens * experts, 1, -2, 2);
  const Values w = random_values(tokens * choices, 2);
  const auto args = [&] {
    return ThresholdGateArgs<double>{.tokens = tokens,
                                     .experts = experts,
                                     .choices = choices,
                                     .temperature = temperature,
                                     .threshold = 0.05,
                                     .hard = hard,
                                     .weighs_plain = plain,
                                     .key = kNoise,
                                     .logits = logits.data()};
  };
  const Threshold gate{args()};
  CHECK((hard || (std::count(gate.indices.begin(), gate.indices.end(), -1) > tokens &&
                  std::count(gate.indices.begin(), gate.indices.end(), -1) < tokens * (experts - 1))));
  Values dlogits = poison(tokens * experts);
  run([&] {
    gate_backward<double>({.tokens = tokens,
                           .experts = experts,
                           .top_k = choices,
                           .factor = plain ? 1 : 1 / temperature,
                           .scores = gate.scores.data(),
                           .indices = gate.indices.data(),
                           .dweights = w.data(),
                           .dlogits = dlogits.data()});
  });
  CHECK(distance(dlogits, numeric_gradient(logits, [&] {
                   const Threshold x{args()};
                   REQUIRE(x.indices == gate.indices);
                   return dot(x.weights, w);
                 })) < 1e-7);
}

TEST_CASE("routing sorts choices by expert, stably", "[kernels]") {
  const Ids indices{2, 0, 2, 1, 0, -1};
  const Routed r{{.tokens = 3, .experts = 4, .top_k = 2, .indices = indices.data()}};
  CHECK(r.counts == Ids{2, 1, 2, 0});
  CHECK(r.offsets == Ids{0, 2, 3, 5, 5});
  CHECK(r.row_of_choice == Ids{3, 0, 4, 2, 1, -1});
  CHECK(r.choice_of_row == Ids{1, 4, 3, 0, 2, -1});
}

TEST_CASE("a capacity drops the later choices, in a compact and in a padded layout", "[kernels]") {
  const Ids indices{0, 0, 0, 1};
  const Routed compact{{.tokens = 4, .experts = 2, .top_k = 1, .capacity = 2, .indices = indices.data()}};
  CHECK(compact.counts == Ids{3, 1});
  CHECK(compact.offsets == Ids{0, 2, 3});
  CHECK(compact.row_of_choice == Ids{0, 1, -1, 2});
  const Routed padded{
      {.tokens = 4, .experts = 2, .top_k = 1, .capacity = 2, .layout = RouteLayout::Padded, .indices = indices.data()}};
  CHECK(padded.offsets == Ids{0, 2, 4});
  CHECK(padded.choice_of_row == Ids{0, 1, 3, -1});
  const Routed groups{{.tokens = 4,  // two of each group: the second of tokens 0 and 1 that chooses expert 0 is dropped
                       .experts = 2,
                       .top_k = 1,
                       .capacity = 1,
                       .layout = RouteLayout::Padded,
                       .groups = 2,
                       .indices = indices.data()}};
  CHECK(groups.offsets == Ids{0, 2, 4});
  CHECK(groups.row_of_choice == Ids{0, -1, 1, 3});
  CHECK(groups.choice_of_row == Ids{0, 2, -1, 3});
}

TEST_CASE("permute and weighted unpermute have the gradients of differences, drops included", "[kernels]") {
  const std::int64_t tokens = 6, k = 2, cols = 19;
  INFO("seed 5");
  const Ids indices = random_ids(tokens * k, 3, 5);
  const Routed r{{.tokens = tokens, .experts = 3, .top_k = k, .capacity = 4, .indices = indices.data()}};
  const std::int64_t rows = r.offsets[3];
  Ids token_of_row;
  for (std::int64_t i = 0; i < rows; ++i) token_of_row.push_back(r.choice_of_row[static_cast<std::size_t>(i)] / int(k));
  const PermuteArgs<double> map{.tokens = tokens,
                                .top_k = k,
                                .rows = rows,
                                .cols = cols,
                                .row_of_choice = r.row_of_choice.data(),
                                .choice_of_row = r.choice_of_row.data()};
  Values x = random_values(tokens * cols, 6), weights = random_values(tokens * k, 7);
  const Values w = random_values(tokens * cols, 8);
  Values expert = poison(rows * cols), y = poison(tokens * cols);
  const auto forward = [&] {
    gather_rows(rows, cols, token_of_row.data(), x.data(), expert.data());
    moe_unpermute(map, expert.data(), weights.data(), y.data());
  };
  Values dexpert = poison(rows * cols), dx = poison(tokens * cols), dweights = poison(tokens * k);
  run([&] {
    forward();
    moe_unpermute_backward<double>({.map = map,
                                    .x = expert.data(),
                                    .weights = weights.data(),
                                    .dy = w.data(),
                                    .dx = dexpert.data(),
                                    .dweights = dweights.data()});
    moe_permute_backward(map, dexpert.data(), dx.data());
  });
  const auto loss = [&] {
    forward();
    return dot(y, w);
  };
  CHECK(distance(dx, numeric_gradient(x, loss)) < 1e-7);
  CHECK(distance(dweights, numeric_gradient(weights, loss)) < 1e-7);
}
