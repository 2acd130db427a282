// SPDX-License-Identifier: Apache-2.0
// Norms over columns that lie on two ranks: the pieces, with their sums added up between them, equal the norm of whole
// rows.
#include "kernels/host/norm_pieces.hpp"

#include "kernels/host/normalization.hpp"
#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

constexpr std::int64_t kRows = 5, kDim = 57, kCut = 24;
constexpr double kEpsilon = 1e-5;

Values add(const Values& a, const Values& b) {
  Values sum = a;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  return sum;
}

/// What both ranks hold and compute; the columns of a rank are a view of whole rows.
struct Pieces {
  NormStyle style;
  Values x, gamma, beta, dy;
  Values y = poison(kRows * kDim), mean = poison(kRows), rstd = poison(kRows);
  Values dx = poison(kRows * kDim), dgamma = Values(kDim, 1.0), dbeta = Values(kDim, 1.0);

  std::int64_t first(int rank) const { return rank == 0 ? 0 : kCut; }
  std::int64_t cols(int rank) const { return rank == 0 ? kCut : kDim - kCut; }
  bool centred() const { return style == NormStyle::Layer; }

  Values sums_of(int rank) {
    Values sums = poison(2 * kRows);
    run([&] {
      norm_sums<double>({.style = style,
                         .rows = kRows,
                         .cols = cols(rank),
                         .x = x.data() + first(rank),
                         .x_stride = kDim,
                         .sums = sums.data()});
    });
    return sums;
  }
  void forward() {
    const Values sums = add(sums_of(0), sums_of(1));
    for (const int rank : {0, 1})
      run([&] {
        norm_apply<double>({.style = style,
                            .rows = kRows,
                            .cols = cols(rank),
                            .dim = kDim,
                            .x = x.data() + first(rank),
                            .x_stride = kDim,
                            .sums = sums.data(),
                            .gamma = gamma.data() + first(rank),
                            .beta = centred() ? beta.data() + first(rank) : nullptr,
                            .y = y.data() + first(rank),
                            .y_stride = kDim,
                            .mean = centred() ? mean.data() : nullptr,
                            .rstd = rstd.data(),
                            .epsilon = kEpsilon});
      });
  }
  Values backward_sums_of(int rank, Write write) {
    Values sums = poison(2 * kRows);
    run([&] {
      norm_backward_sums<double>({.style = style,
                                  .rows = kRows,
                                  .cols = cols(rank),
                                  .x = x.data() + first(rank),
                                  .x_stride = kDim,
                                  .gamma = gamma.data() + first(rank),
                                  .mean = centred() ? mean.data() : nullptr,
                                  .rstd = rstd.data(),
                                  .dy = dy.data() + first(rank),
                                  .dy_stride = kDim,
                                  .sums = sums.data(),
                                  .dgamma = dgamma.data() + first(rank),
                                  .dbeta = centred() ? dbeta.data() + first(rank) : nullptr,
                                  .write_parameters = write});
    });
    return sums;
  }
  void backward(Write write) {
    const Values sums = add(backward_sums_of(0, write), backward_sums_of(1, write));
    for (const int rank : {0, 1})
      run([&] {
        norm_backward_apply<double>({.style = style,
                                     .rows = kRows,
                                     .cols = cols(rank),
                                     .dim = kDim,
                                     .x = x.data() + first(rank),
                                     .x_stride = kDim,
                                     .gamma = gamma.data() + first(rank),
                                     .mean = centred() ? mean.data() : nullptr,
                                     .rstd = rstd.data(),
                                     .dy = dy.data() + first(rank),
                                     .dy_stride = kDim,
                                     .sums = sums.data(),
                                     .dx = dx.data() + first(rank),
                                     .dx_stride = kDim});
      });
  }
};

Pieces make(NormStyle style) {
  return {.style = style,
          .x = random_values(kRows * kDim, 1, -1, 2),
          .gamma = random_values(kDim, 2),
          .beta = random_values(kDim, 3),
          .dy = random_values(kRows * kDim, 4)};
}

}  // namespace

TEST_CASE("a norm in pieces equals the norm of whole rows", "[kernels]") {
  for (const NormStyle style : {NormStyle::Layer, NormStyle::Rms}) {
    Pieces p = make(style);
    Values y = poison(kRows * kDim), mean(kRows, 0.0), rstd = poison(kRows);
    p.forward();
    if (p.centred())
      layer_norm<double>({.rows = kRows,
                          .cols = kDim,
                          .x = p.x.data(),
                          .gamma = p.gamma.data(),
                          .beta = p.beta.data(),
                          .y = y.data(),
                          .mean = mean.data(),
                          .rstd = rstd.data(),
                          .epsilon = kEpsilon});
    else
      rms_norm<double>({.rows = kRows,
                        .cols = kDim,
                        .x = p.x.data(),
                        .gamma = p.gamma.data(),
                        .y = y.data(),
                        .rstd = rstd.data(),
                        .epsilon = kEpsilon});
    CHECK(distance(p.y, y) < 1e-13);
    CHECK(distance(p.rstd, rstd) < 1e-13);
    if (p.centred()) CHECK(distance(p.mean, mean) < 1e-14);
  }
}

TEST_CASE("gradients of a norm in pieces equal differences", "[kernels]") {
  for (const NormStyle style : {NormStyle::Layer, NormStyle::Rms}) {
    Pieces p = make(style);
    const auto loss = [&] {
      p.forward();
      return dot(p.y, p.dy);
    };
    const Values dx = numeric_gradient(p.x, loss), dgamma = numeric_gradient(p.gamma, loss),
                 dbeta = numeric_gradient(p.beta, loss);
    p.forward();
    p.backward(Write::Overwrite);
    CHECK(distance(p.dx, dx) < 1e-8);
    CHECK(distance(p.dgamma, dgamma) < 1e-8);
    if (p.centred()) CHECK(distance(p.dbeta, dbeta) < 1e-8);
    Values twice = p.dgamma;
    for (double& v : twice) v *= 2;
    p.backward(Write::Accumulate);
    CHECK(distance(p.dgamma, twice) < 1e-15);
  }
}

TEST_CASE("a row of equal values has the spread of epsilon, in float too", "[kernels]") {
  // Σx²/n − mean² may round below 0: y is finite all the same.
  std::vector<float> x(64, 0.1f), sums(2), gamma(64, 1.0f), y = poison<float>(64);
  run([&] {
    norm_sums<float>({.rows = 1, .cols = 64, .x = x.data(), .sums = sums.data()});
    norm_apply<float>(
        {.rows = 1, .cols = 64, .dim = 64, .x = x.data(), .sums = sums.data(), .gamma = gamma.data(), .y = y.data()});
  });
  for (const float v : y) CHECK(std::abs(v) < 1e-3f);
}
