// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/activation.hpp"

#include "kernels/host/vector_math.hpp"
#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

constexpr Activation kAll[] = {Activation::Relu, Activation::GeluTanh,  Activation::GeluErf, Activation::Silu,
                               Activation::Tanh, Activation::QuickGelu, Activation::Sigmoid};

/// The definition, by the functions of the standard library.
double reference(Activation kind, double x) {
  const auto sigma = [](double z) { return 1 / (1 + std::exp(-z)); };
  switch (kind) {
    case Activation::Relu:
      return x > 0 ? x : 0;
    case Activation::GeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Activation::GeluErf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::Silu:
      return x * sigma(x);
    case Activation::Tanh:
      return std::tanh(x);
    case Activation::QuickGelu:
      return x * sigma(1.702 * x);
    case Activation::Sigmoid:
      return sigma(x);
  }
  return 0;
}

/// Largest |f(x) − exact(x)| / max(|exact(x)|, floor) over [low, high].
template <class T, class F, class G>
double worst(double low, double high, double floor, F&& f, G&& exact) {
  double error = 0;
  for (int i = 0; i <= 200000; ++i) {
    const T x = static_cast<T>(low + (high - low) * i / 200000);
    const double e = exact(static_cast<double>(x));
    error = std::max(error, std::abs(static_cast<double>(f(x)) - e) / std::max(std::abs(e), floor));
  }
  return error;
}

}  // namespace

TEST_CASE("vector mathematics in float is accurate to 1e-7 and in double to 1e-15", "[kernels]") {
  const auto exp_d = [](double x) { return std::exp(x); };
  const auto log_d = [](double x) { return std::log(x); };
  const auto tanh_d = [](double x) { return std::tanh(x); };
  const auto erf_d = [](double x) { return std::erf(x); };
  CHECK(worst<float>(
            -87, 88, 0, [](float x) { return orrery::kernels::exp(x); }, exp_d) < 2e-7);
  CHECK(worst<double>(
            -708, 709, 0, [](double x) { return orrery::kernels::exp(x); }, exp_d) < 1e-15);
  CHECK(worst<float>(
            -10, 10, 0.01, [](float x) { return orrery::kernels::tanh(x); }, tanh_d) < 2e-7);
  CHECK(worst<float>(
            -6, 6, 0.01, [](float x) { return orrery::kernels::erf(x); }, erf_d) < 2e-7);
  CHECK(worst<float>(
            1e-3, 100, 0.1, [](float x) { return orrery::kernels::log(x); }, log_d) < 2e-7);
  CHECK(worst<float>(
            1e-30, 1e30, 1, [](float x) { return orrery::kernels::log(x); }, log_d) < 2e-7);
}

TEST_CASE("exponentials end in zero, infinity and NaN as they should", "[kernels]") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(orrery::kernels::exp(-infinity) == 0.0f);
  CHECK(orrery::kernels::exp(-200.0f) == 0.0f);
  CHECK(orrery::kernels::exp(200.0f) == infinity);
  CHECK(orrery::kernels::exp(infinity) == infinity);
  CHECK(std::isnan(orrery::kernels::exp(std::nanf(""))));
  CHECK(orrery::kernels::exp(-800.0) == 0.0);
  CHECK(orrery::kernels::exp(800.0) == std::numeric_limits<double>::infinity());
  CHECK(orrery::kernels::exp(0.0f) == 1.0f);
  CHECK(orrery::kernels::log(0.0f) == -infinity);
}

TEST_CASE("activations equal their formulas and their slopes equal differences", "[kernels]") {
  const std::int64_t n = 77;
  for (const Activation kind : kAll) {
    INFO("seed 1, activation " << int(kind));
    Values x = random_values(n, 1, -6, 6);
    const Values w = random_values(n, 2);
    const auto xf = as<float>(x), wf = as<float>(w);
    Values y = poison(n), dx = poison(n), expected;
    auto yf = poison<float>(n), dxf = poison<float>(n);
    for (const double v : x) expected.push_back(reference(kind, v));
    run([&] {
      activation<double>({.kind = kind, .rows = 1, .cols = n, .x = x.data(), .y = y.data()});
      activation<float>({.kind = kind, .rows = 1, .cols = n, .x = xf.data(), .y = yf.data()});
      activation_backward<double>({.kind = kind, .rows = 1, .cols = n, .x = x.data(), .dy = w.data(), .dx = dx.data()});
      activation_backward<float>(
          {.kind = kind, .rows = 1, .cols = n, .x = xf.data(), .dy = wf.data(), .dx = dxf.data()});
    });
    CHECK(distance(y, expected) < 1e-15);
    CHECK(distance(yf, expected) < 3e-7);
    const auto loss = [&] {
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) sum += w[i] * reference(kind, x[i]);
      return sum;
    };
    CHECK(distance(dx, numeric_gradient(x, loss)) < 1e-7);
    CHECK(distance(dxf, dx) < 1e-6);
  }
}

TEST_CASE("gated activations read and write the halves of a fused tensor", "[kernels]") {
  const std::int64_t rows = 3, f = 19;
  for (const Activation kind : kAll) {
    INFO("seed 3, activation " << int(kind));
    Values t = random_values(rows * 2 * f, 3, -4, 4);
    const Values w = random_values(rows * f, 4);
    Values y = poison(rows * f), dt = poison(rows * 2 * f);
    const auto forward = [&] {
      gated_activation<double>({.kind = kind,
                                .rows = rows,
                                .cols = f,
                                .gate = t.data(),
                                .gate_stride = 2 * f,
                                .up = t.data() + f,
                                .up_stride = 2 * f,
                                .y = y.data()});
    };
    run([&] {
      forward();
      gated_activation_backward<double>({.kind = kind,
                                         .rows = rows,
                                         .cols = f,
                                         .gate = t.data(),
                                         .gate_stride = 2 * f,
                                         .up = t.data() + f,
                                         .up_stride = 2 * f,
                                         .dy = w.data(),
                                         .dgate = dt.data(),
                                         .dgate_stride = 2 * f,
                                         .dup = dt.data() + f,
                                         .dup_stride = 2 * f});
    });
    CHECK(y[0] == Approx(reference(kind, t[0]) * t[f]).epsilon(1e-14));
    CHECK(distance(dt, numeric_gradient(t, [&] {
                     forward();
                     return dot(y, w);
                   })) < 1e-7);
  }
}
