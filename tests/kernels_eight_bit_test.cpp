// SPDX-License-Identifier: Apache-2.0
// Numbers of 8 bits: rounding, on the host and as the kernels of the GPU do it.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/eight_bit.hpp"
#include "kernels/host/eight_bit.hpp"

using namespace orrery::kernels;

namespace {

/// By the definition: (1 + m/8)·2^(e−7), m·2⁻⁹ where e is 0; 0x7f is no number.
double value_of(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double size = exponent == 0 ? mantissa / 512.0 : (1 + mantissa / 8.0) * std::pow(2.0, exponent - 7);
  return code & 0x80 ? -size : size;
}

/// The nearest by looking at all; of two as near, the one whose last bit is 0.
double nearest(double x) {
  double best = 0, least = std::numeric_limits<double>::infinity();
  bool even = false;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    const double distance = std::abs(value_of(code) - x);
    if (distance > least || (distance == least && (even || code % 2 != 0))) continue;
    best = value_of(code), least = distance, even = code % 2 == 0;
  }
  return best;
}

}  // namespace

TEST_CASE("numbers are rounded to the nearest of 8 bits, on the host and on the device", "[kernels]") {
  std::vector<double> numbers{0,    -0.0,      448,        447,        463,  465,     1e9,
                              -1e9, 1.0 / 512, 1.0 / 1024, 3.0 / 1024, 1e-9, 0.015625};
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    numbers.push_back(value_of(code));
    if (code % 128 > 0) numbers.push_back((value_of(code) + value_of(code - 1)) / 2);  // half way: to even
  }
  std::mt19937_64 random{Catch::rngSeed()};
  std::uniform_real_distribution<double> exponent{-12, 10}, sign{-1, 1};
  for (int i = 0; i < 2000; ++i) numbers.push_back(std::copysign(std::exp2(exponent(random)), sign(random)));
  for (const double exact : numbers) {
    const double x = static_cast<float>(exact);
    INFO(x);
    CHECK(round_to_eight_bits(x) == nearest(x));
    CHECK(value_of(cuda::round_to_e4m3(static_cast<float>(x))) == nearest(x));
  }
  CHECK(std::isnan(round_to_eight_bits(NAN)));
  CHECK((cuda::round_to_e4m3(NAN) & 0x7f) == 0x7f);
  CHECK(cuda::round_to_e4m3(std::numeric_limits<float>::infinity()) == 0x7e);
}

TEST_CASE("an operand is cast so that its largest number becomes the largest of 8 bits", "[kernels]") {
  // max |x| = 7, s = 7/448 = 1/64: 7 → 448, 1 → 64, 0.015 → 0.96 → nearest multiple of 1/16: 0.9375.
  const std::vector<float> in{1, 2, -99, -7, 0.015f, -99};
  std::vector<float> out(4, -1);
  const float scale = cast_to_eight_bits<float>({1, 2, 2, in.data(), 3, 0, out.data()});
  CHECK(scale == 7.0f / 448);
  CHECK(out == std::vector<float>{64, 128, -448, 0.9375f});
  const std::vector<float> zeros(4);
  CHECK(cast_to_eight_bits<float>({1, 2, 2, zeros.data(), 2, 0, out.data()}) == 1);
  CHECK(out == zeros);
}
