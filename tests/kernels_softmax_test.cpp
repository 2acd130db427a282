// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/softmax.hpp"

#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;
using Ids = std::vector<std::int32_t>;

TEST_CASE("softmax sums to one and its gradient equals differences", "[kernels]") {
  INFO("seed 3");
  Values x = random_values(2 * 21, 3, -3, 3), y = poison(42), dx = random_values(42, 4);
  const Values w = dx;
  run([&] {
    softmax<double>({.rows = 2, .cols = 21, .scale = 0.7, .x = x.data(), .y = y.data()});
    softmax_backward<double>(  // in place
        {.rows = 2, .cols = 21, .scale = 0.7, .y = y.data(), .dy = dx.data(), .dx = dx.data()});
  });
  CHECK(dot(y, Values(42, 1.0)) == Approx(2).epsilon(1e-14));
  Values z = poison(42);
  CHECK(distance(dx, numeric_gradient(x, [&] {
                   softmax<double>({.rows = 2, .cols = 21, .scale = 0.7, .x = x.data(), .y = z.data()});
                   return dot(z, w);
                 })) < 1e-7);
}

TEST_CASE("causal softmax leaves out the columns that lie behind the position of the row", "[kernels]") {
  // Rows 0, 2, 4 lie at 7, rows 1, 3, 5 at −1; of 40 columns at 0, 3, 6, 9 … three are at or before 7, none before 0.
  INFO("seed 5");
  const Ids rows{7, -1};
  Ids cols(40);
  for (std::int32_t c = 0; c < 40; ++c) cols[static_cast<std::size_t>(c)] = 3 * c;
  const Values x = random_values(6 * 40, 5, -3, 3);
  const auto check = [&]<class T>(T, double tolerance) {
    std::vector<T> y = as<T>(x);
    run([&] {  // in place
      softmax<T>({.rows = 6,
                  .cols = 40,
                  .scale = T(0.5),
                  .x = y.data(),
                  .y = y.data(),
                  .period = 2,
                  .row_positions = rows.data(),
                  .col_positions = cols.data()});
    });
    Values expected(6 * 40, 0.0);
    for (std::size_t r = 0; r < 6; r += 2) {
      double sum = 0;
      for (std::size_t c = 0; c < 3; ++c) sum += std::exp(0.5 * x[r * 40 + c]);
      for (std::size_t c = 0; c < 3; ++c) expected[r * 40 + c] = std::exp(0.5 * x[r * 40 + c]) / sum;
    }
    CHECK(distance(y, expected) < tolerance);
  };
  check(double{}, 1e-14);
  check(float{}, 1e-6);
}

TEST_CASE("causal softmax with a window leaves out the columns before it", "[kernels]") {
  // The row lies at 7: a window of 5 begins at 3, one in chunks of 5 at 5; a row that sees nothing is 0.
  const Ids rows{7, 30}, cols{0, 2, 3, 5, 7, 8};
  const Values x = random_values(2 * 6, 11, -3, 3);
  for (const bool chunked : {false, true}) {
    Values y = poison(12), expected(12, 0.0);
    run([&] {
      softmax<double>({.rows = 2,
                       .cols = 6,
                       .x = x.data(),
                       .y = y.data(),
                       .period = 2,
                       .row_positions = rows.data(),
                       .col_positions = cols.data(),
                       .window = 5,
                       .chunked = chunked});
    });
    double sum = 0;
    for (std::size_t c = chunked ? 3 : 2; c < 5; ++c) sum += std::exp(x[c]);
    for (std::size_t c = chunked ? 3 : 2; c < 5; ++c) expected[c] = std::exp(x[c]) / sum;
    CHECK(distance(y, expected) < 1e-14);
  }
}

TEST_CASE("softmax of rows that lie apart writes its columns only", "[kernels]") {
  INFO("seed 6");
  const Values x = random_values(3 * 10, 6);
  Values dense = poison(3 * 7), packed, apart(3 * 9, 5.0);
  for (std::size_t r = 0; r < 3; ++r)
    packed.insert(packed.end(), x.begin() + 10 * long(r), x.begin() + 10 * long(r) + 7);
  run([&] {
    softmax<double>({.rows = 3, .cols = 7, .x = packed.data(), .y = dense.data()});
    softmax<double>({.rows = 3, .cols = 7, .x = x.data(), .x_stride = 10, .y = apart.data(), .y_stride = 9});
  });
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t c = 0; c < 9; ++c) CHECK(apart[r * 9 + c] == (c < 7 ? dense[r * 7 + c] : 5.0));
}
