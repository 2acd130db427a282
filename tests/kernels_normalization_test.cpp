// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/normalization.hpp"

#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

constexpr std::int64_t kRows = 3;
enum class Kind { Layer, Rms };

/// y, dx, dgamma, dbeta of one normalisation with dy = w.
template <class T>
struct Result {
  std::vector<T> y, dx, dgamma, dbeta;
};

template <class T>
Result<T> forward_backward(Kind kind, std::int64_t cols, const Values& x64, const Values& gamma64, const Values& beta64,
                           const Values& w64) {
  const auto x = as<T>(x64), gamma = as<T>(gamma64), beta = as<T>(beta64), w = as<T>(w64);
  Result<T> r{poison<T>(kRows * cols), poison<T>(kRows * cols), poison<T>(cols), poison<T>(cols)};
  auto mean = poison<T>(kRows), rstd = poison<T>(kRows);
  run([&] {
    if (kind == Kind::Layer) {
      layer_norm<T>({.rows = kRows,
                     .cols = cols,
                     .x = x.data(),
                     .gamma = gamma.data(),
                     .beta = beta.data(),
                     .y = r.y.data(),
                     .mean = mean.data(),
                     .rstd = rstd.data(),
                     .epsilon = T(1e-3)});
      layer_norm_backward<T>({.rows = kRows,
                              .cols = cols,
                              .x = x.data(),
                              .gamma = gamma.data(),
                              .mean = mean.data(),
                              .rstd = rstd.data(),
                              .dy = w.data(),
                              .dx = r.dx.data(),
                              .dgamma = r.dgamma.data(),
                              .dbeta = r.dbeta.data()});
    } else {
      rms_norm<T>({.rows = kRows,
                   .cols = cols,
                   .x = x.data(),
                   .gamma = gamma.data(),
                   .y = r.y.data(),
                   .rstd = rstd.data(),
                   .epsilon = T(1e-3)});
      rms_norm_backward<T>({.rows = kRows,
                            .cols = cols,
                            .x = x.data(),
                            .gamma = gamma.data(),
                            .rstd = rstd.data(),
                            .dy = w.data(),
                            .dx = r.dx.data(),
                            .dgamma = r.dgamma.data()});
    }
  });
  return r;
}

void check(Kind kind, std::int64_t cols, unsigned seed) {
  INFO("seed " << seed << " cols " << cols);
  Values x = random_values(kRows * cols, seed, -1, 2), gamma = random_values(cols, seed + 1),
         beta = random_values(cols, seed + 2);
  const Values w = random_values(kRows * cols, seed + 3);
  const auto r = forward_backward<double>(kind, cols, x, gamma, beta, w);
  const auto loss = [&] { return dot(forward_backward<double>(kind, cols, x, gamma, beta, w).y, w); };
  CHECK(distance(r.dx, numeric_gradient(x, loss)) < 1e-7);
  CHECK(distance(r.dgamma, numeric_gradient(gamma, loss)) < 1e-7);
  if (kind == Kind::Layer) CHECK(distance(r.dbeta, numeric_gradient(beta, loss)) < 1e-7);
  const auto f = forward_backward<float>(kind, cols, x, gamma, beta, w);
  CHECK(distance(f.y, r.y) < 1e-6);
  CHECK(distance(f.dx, r.dx) < 1e-5);
  CHECK(distance(f.dgamma, r.dgamma) < 1e-5);
}

}  // namespace

TEST_CASE("layer norm gives rows of mean beta and its gradients equal differences", "[kernels]") {
  for (const std::int64_t cols : {2, 7, 16, 33, 130}) check(Kind::Layer, cols, static_cast<unsigned>(cols));
}

TEST_CASE("RMS norm gradients equal differences", "[kernels]") {
  for (const std::int64_t cols : {2, 7, 16, 33, 130}) check(Kind::Rms, cols, static_cast<unsigned>(cols));
}

TEST_CASE("layer norm of 1, 2, 3, 4 without parameters is the textbook result", "[kernels]") {
  // mean 2.5, variance 1.25: y = (x − 2.5)/√1.25
  const Values x{1, 2, 3, 4};
  Values y = poison(4);
  layer_norm<double>({.rows = 1, .cols = 4, .x = x.data(), .y = y.data(), .epsilon = 0});
  const double s = std::sqrt(1.25);
  CHECK(distance(y, {-1.5 / s, -0.5 / s, 0.5 / s, 1.5 / s}) < 1e-15);
}

TEST_CASE("RMS norm takes a slice of a wider tensor by its row stride", "[kernels]") {
  // rows (3, 4 | 9) and (6, 8 | 9): rms √12.5 and √50
  const Values x{3, 4, 9, 6, 8, 9};
  Values y = poison(4);
  rms_norm<double>({.rows = 2, .cols = 2, .x = x.data(), .x_stride = 3, .y = y.data(), .epsilon = 0});
  const double r = std::sqrt(12.5);
  CHECK(distance(y, {3 / r, 4 / r, 3 / r, 4 / r}) < 1e-15);
}

TEST_CASE("normalisation gradients accumulate when asked to", "[kernels]") {
  const Values x{1, 2, 4}, mean{7.0 / 3}, rstd{0.8}, dy{1, -1, 2};
  Values dx{0, 0, 0}, dgamma{0, 0, 0}, dbeta{0, 0, 0};
  const LayerNormBackwardArgs<double> args{.rows = 1,
                                           .cols = 3,
                                           .x = x.data(),
                                           .mean = mean.data(),
                                           .rstd = rstd.data(),
                                           .dy = dy.data(),
                                           .dx = dx.data(),
                                           .dgamma = dgamma.data(),
                                           .dbeta = dbeta.data(),
                                           .write_dx = Write::Accumulate,
                                           .write_parameters = Write::Accumulate};
  layer_norm_backward(args);
  const Values once_x = dx, once_gamma = dgamma;
  layer_norm_backward(args);
  CHECK(dx == Values{2 * once_x[0], 2 * once_x[1], 2 * once_x[2]});
  CHECK(dgamma == Values{2 * once_gamma[0], 2 * once_gamma[1], 2 * once_gamma[2]});
  CHECK(dbeta == Values{2, -2, 4});
}
