// SPDX-License-Identifier: Apache-2.0
#include "sim/base/random.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>

using namespace orrery;

namespace {

struct Moments {
  double mean, variance;
};

constexpr int kSamples = 200'000;

Moments moments_of(const std::function<double(Random&)>& sample) {
  Random random{20240607};
  double sum = 0, squares = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double x = sample(random);
    sum += x;
    squares += x * x;
  }
  const double mean = sum / kSamples;
  return {mean, squares / kSamples - mean * mean};
}

}  // namespace

TEST_CASE("the same seed and stream give the same numbers, others do not", "[base][random]") {
  Random a{7, 1}, b{7, 1}, other_stream{7, 2}, other_seed{8, 1};
  const std::uint64_t first = a.bits();
  CHECK(first == b.bits());
  CHECK(first != other_stream.bits());
  CHECK(first != other_seed.bits());
}

// Each mean may differ from the true one by 5 standard errors, sqrt(variance / n): a wrong sampler fails, a right one
// passes but for one seed in two million.
TEST_CASE("the distributions have their mean and variance", "[base][random]") {
  struct Row {
    const char* name;
    std::function<double(Random&)> sample;
    double mean, variance;
  };
  const auto row = GENERATE(values<Row>({
      {"uniform", [](Random& r) { return r.uniform(); }, 0.5, 1.0 / 12},
      {"uniform in [2, 6)", [](Random& r) { return r.uniform(2, 6); }, 4, 16.0 / 12},
      {"below 10", [](Random& r) { return double(r.below(10)); }, 4.5, 99.0 / 12},  // (n² − 1) / 12
      {"normal", [](Random& r) { return r.normal(3, 2); }, 3, 4},
      {"exponential", [](Random& r) { return r.exponential(2); }, 2, 4},
      {"poisson 0.5", [](Random& r) { return double(r.poisson(0.5)); }, 0.5, 0.5},
      {"poisson 29", [](Random& r) { return double(r.poisson(29)); }, 29, 29},
      {"poisson 30", [](Random& r) { return double(r.poisson(30)); }, 30, 30},
      {"poisson 1000", [](Random& r) { return double(r.poisson(1000)); }, 1000, 1000},
      {"bernoulli", [](Random& r) { return double(r.bernoulli(0.2)); }, 0.2, 0.16},
  }));
  INFO(row.name << ", seed 20240607");
  const Moments m = moments_of(row.sample);
  CHECK(std::abs(m.mean - row.mean) < 5 * std::sqrt(row.variance / kSamples));
  CHECK(m.variance == Approx(row.variance).epsilon(0.03));
}

TEST_CASE("uniform numbers stay below one and below(1) is zero", "[base][random]") {
  Random random{1};
  for (int i = 0; i < 1000; ++i) {
    const double u = random.uniform();
    CHECK((u >= 0 && u < 1));
    CHECK(random.below(1) == 0);
  }
  CHECK(random.poisson(0) == 0);
}

TEST_CASE("a leap comes to where as many calls come", "[base][random]") {
  for (const int log2 : {0, 1, 7, 17}) {
    Random walked{5, 3}, leapt{5, 3};
    for (int i = 0; i < 1 << log2; ++i) walked.bits();
    RandomLeap{log2}(leapt);
    for (int i = 0; i < 4; ++i) CHECK(leapt.bits() == walked.bits());
  }
}
