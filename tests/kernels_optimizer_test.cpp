// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/optimizer.hpp"

#include "kernels/host/dense.hpp"
#include "kernels/host/recommendation.hpp"
#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;
using Ids = std::vector<std::int32_t>;

TEST_CASE("AdamW follows its formulas over several steps", "[kernels]") {
  const std::int64_t n = 21;
  INFO("seed 1");
  Values w = random_values(n, 1), m(n, 0.0), v(n, 0.0), ew = w, em = m, ev = v;
  auto wf = as<float>(w), mf = as<float>(m), vf = as<float>(v);
  for (int step = 1; step <= 3; ++step) {
    const Values g = random_values(n, 10 + static_cast<unsigned>(step));
    const auto gf = as<float>(g);
    const double rate = 0.01, b1 = 0.9, b2 = 0.99, eps = 1e-6, decay = 0.1, scale = 0.5;
    for (std::size_t i = 0; i < w.size(); ++i) {
      em[i] = b1 * em[i] + (1 - b1) * scale * g[i];
      ev[i] = b2 * ev[i] + (1 - b2) * scale * scale * g[i] * g[i];
      const double mh = em[i] / (1 - std::pow(b1, step)), vh = ev[i] / (1 - std::pow(b2, step));
      ew[i] = ew[i] * (1 - rate * decay) - rate * mh / (std::sqrt(vh) + eps);
    }
    run([&] {
      adamw<double>({.n = n,
                     .rate = rate,
                     .beta1 = b1,
                     .beta2 = b2,
                     .epsilon = eps,
                     .weight_decay = decay,
                     .step = step,
                     .gradient_scale = scale,
                     .weights = w.data(),
                     .gradient = g.data(),
                     .m = m.data(),
                     .v = v.data()});
      adamw<float>({.n = n,
                    .rate = rate,
                    .beta1 = b1,
                    .beta2 = b2,
                    .epsilon = eps,
                    .weight_decay = decay,
                    .step = step,
                    .gradient_scale = scale,
                    .weights = wf.data(),
                    .gradient = gf.data(),
                    .m = mf.data(),
                    .v = vf.data()});
    });
  }
  CHECK(distance(w, ew) < 1e-15);
  CHECK(distance(m, em) < 1e-14);
  CHECK(distance(v, ev) < 1e-14);
  CHECK(distance(wf, ew) < 1e-6);
}

TEST_CASE("SGD with momentum, with Nesterov and without velocity follows its formulas", "[kernels]") {
  for (const bool nesterov : {false, true}) {
    Values w{1, 2}, u{0.5, -1}, g{4, 8};
    run([&] {
      sgd<double>({.n = 2,
                   .rate = 0.1,
                   .momentum = 0.9,
                   .weight_decay = 0.01,
                   .nesterov = nesterov,
                   .gradient_scale = 0.5,
                   .weights = w.data(),
                   .gradient = g.data(),
                   .velocity = u.data()});
    });
    // g' = 2.01, 4.02; u = 0.45 + 2.01, −0.9 + 4.02
    CHECK(distance(u, {2.46, 3.12}) < 1e-15);
    CHECK(w[0] == Approx(1 - 0.1 * (nesterov ? 2.01 + 0.9 * 2.46 : 2.46)).epsilon(1e-15));
    CHECK(w[1] == Approx(2 - 0.1 * (nesterov ? 4.02 + 0.9 * 3.12 : 3.12)).epsilon(1e-15));
  }
  Values w{1}, g{4};
  sgd<double>({.n = 1, .rate = 0.25, .weights = w.data(), .gradient = g.data()});
  CHECK(w[0] == 0);
}

TEST_CASE("the squared norm adds up in double, and the clip factor limits a norm", "[kernels]") {
  INFO("seed 2");
  const Values x = random_values(1003, 2);
  const auto f = as<float>(x);
  double sum = 1, expected = 1, from_float = 0;
  for (const double v : x) expected += v * v;
  run([&] {
    sum_of_squares(1003, x.data(), &sum);
    sum_of_squares(1003, f.data(), &from_float);
  });
  CHECK(sum == Approx(expected).epsilon(1e-14));
  CHECK(from_float == Approx(expected - 1).epsilon(1e-7));
  CHECK(clip_factor(16, 1) == Approx(0.25).epsilon(1e-6));
  CHECK(clip_factor(0.25, 1) == 1);
}

TEST_CASE("embedding bags sum or average, and their gradients equal differences", "[kernels]") {
  const Ids offsets{0, 3, 3, 5}, ids{1, 4, 1, 0, 9};
  for (const BagMode mode : {BagMode::Sum, BagMode::Mean}) {
    INFO("seed 3");
    Values table = random_values(5 * 9, 3), out = poison(27), dtable = poison(45);
    const Values w = random_values(27, 4);
    const auto forward = [&] {
      embedding_bag<double>({.bags = 3,
                             .dim = 9,
                             .first = 0,
                             .last = 5,
                             .mode = mode,
                             .offsets = offsets.data(),
                             .ids = ids.data(),
                             .table = table.data(),
                             .out = out.data()});
    };
    run([&] {
      forward();
      embedding_bag_backward<double>({.bags = 3,
                                      .dim = 9,
                                      .first = 0,
                                      .last = 5,
                                      .mode = mode,
                                      .offsets = offsets.data(),
                                      .ids = ids.data(),
                                      .dout = w.data(),
                                      .dtable = dtable.data(),
                                      .write = Write::Overwrite});
    });
    CHECK(out[0] == Approx((2 * table[9] + table[36]) / (mode == BagMode::Mean ? 3 : 1)).epsilon(1e-14));
    CHECK(out[9] == 0);
    CHECK(distance(dtable, numeric_gradient(table, [&] {
                     forward();
                     return dot(out, w);
                   })) < 1e-9);
  }
}

TEST_CASE("the dot interaction has F(F-1)/2 pairs after the dense feature and the gradient of differences",
          "[kernels]") {
  const DotInteractionDims d{.batch = 2, .features = 4, .dim = 17};
  REQUIRE(dot_interaction_cols(d) == 17 + 6);
  INFO("seed 5");
  Values x = random_values(2 * 4 * 17, 5), y = poison(2 * 23), dx = poison(2 * 4 * 17);
  const Values w = random_values(2 * 23, 6);
  run([&] {
    dot_interaction(d, x.data(), y.data());
    dot_interaction_backward(d, x.data(), w.data(), dx.data());
  });
  CHECK(y[3] == x[3]);
  double pair = 0;  // the last pair of the first example is (3, 2)
  for (std::size_t c = 0; c < 17; ++c) pair += x[51 + c] * x[34 + c];
  CHECK(y[22] == Approx(pair).epsilon(1e-14));
  CHECK(distance(dx, numeric_gradient(x, [&] {
                   dot_interaction(d, x.data(), y.data());
                   return dot(y, w);
                 })) < 1e-7);
}

TEST_CASE("a symmetric solve inverts a positive definite matrix and leaves others unsolved", "[kernels]") {
  const std::int64_t n = 23, rhs = 3;
  INFO("seed 7");
  const Values r = random_values(n * n, 7), expected = random_values(n * rhs, 8);
  Values a(static_cast<std::size_t>(n * n), 0.0), x(static_cast<std::size_t>(n * rhs), 0.0);
  const auto at = [](std::int64_t i, std::int64_t j) { return static_cast<std::size_t>(i * n + j); };
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {  // A = R·Rᵀ + I
      for (std::int64_t p = 0; p < n; ++p) a[at(i, j)] += r[at(i, p)] * r[at(j, p)];
      if (i == j) a[at(i, j)] += 1;
    }
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t p = 0; p < n; ++p)
      for (std::int64_t c = 0; c < rhs; ++c)
        x[static_cast<std::size_t>(i * rhs + c)] += a[at(i, p)] * expected[static_cast<std::size_t>(p * rhs + c)];
  std::int64_t factored = 0;
  run([&] {
    factored = solve_symmetric<double>({.n = n, .rhs = rhs, .a = a.data(), .lda = n, .x = x.data(), .ldx = rhs});
  });
  CHECK(factored == n);
  CHECK(distance(x, expected) < 1e-12);
  Values indefinite{4, 0, 2, 1};  // the second pivot is 1 − (2/2)² = 0
  CHECK(cholesky<double>(2, indefinite.data(), 2) == 1);
}
