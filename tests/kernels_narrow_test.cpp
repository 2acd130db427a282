// SPDX-License-Identifier: Apache-2.0
// Numbers of 8 bits: rounding, on the host and as the kernels of the GPU do it.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/eight_bit.hpp"
#include "kernels/host/narrow.hpp"

using namespace orrery::kernels;

namespace {

/// By the definition: (1 + m/8)·2^(e−7), m·2⁻⁹ where e is 0; 0x7f is no number.
double value_of(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double size = exponent == 0 ? mantissa / 512.0 : (1 + mantissa / 8.0) * std::pow(2.0, exponent - 7);
  return code & 0x80 ? -size : size;
}

/// The nearest by looking at all; of two as near, the one whose last bit is 0.
template <class ValueOf>
double nearest_of(double x, int codes, ValueOf value) {
  double best = 0, least = std::numeric_limits<double>::infinity();
  bool even = false;
  for (int code = 0; code < codes; ++code) {
    if (std::isnan(value(code))) continue;
    const double distance = std::abs(value(code) - x);
    if (distance > least || (distance == least && (even || code % 2 != 0))) continue;
    best = value(code), least = distance, even = code % 2 == 0;
  }
  return best;
}
double nearest(double x) {
  return nearest_of(x, 256, [](int code) { return (code & 0x7f) == 0x7f ? NAN : value_of(code); });
}

/// Of 4 bits: (1 + m/2)·2^(e−1), m/2 where e is 0.
double value_of_four(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double size = exponent == 0 ? mantissa / 2.0 : (1 + mantissa / 2.0) * std::pow(2.0, exponent - 1);
  return code & 8 ? -size : size;
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

TEST_CASE("numbers are rounded to the nearest of 4 bits", "[kernels]") {
  std::mt19937_64 random{Catch::rngSeed()};
  std::uniform_real_distribution<double> any{-7, 7};
  std::vector<double> numbers{0, -0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -5, 5.01, 6, 7, 1e9, -1e9, 0.2499};
  for (int i = 0; i < 2000; ++i) numbers.push_back(any(random));
  for (const double x : numbers) {
    INFO(x);
    CHECK(round_to_four_bits(x) == nearest_of(x, 16, value_of_four));
  }
  CHECK(std::isnan(round_to_four_bits(NAN)));
}

TEST_CASE("an operand of 4 bits has a scale for each 16 numbers that are added up", "[kernels]") {
  // Two lines of 20 numbers: runs of 16 and 4. max |x| = 2688 = 448·6, s = 1. The run of 2688 has the scale 448; that
  // of 12 has 2, so that 5 becomes 2.5·2 → 2·2 (ties to even) and 7 becomes 3.5·2 → 4·2; that of zeros stays.
  constexpr std::int64_t kLines = 2, kLength = 20;
  std::vector<double> lines(kLines * kLength);
  lines[0] = 2688, lines[1] = 448, lines[2] = 100;
  lines[16] = 12, lines[17] = 5, lines[18] = 7, lines[19] = -0.4;
  lines[20] = 1, lines[21] = -0.5;
  std::vector<double> expected = lines;
  expected[1] = 448, expected[2] = 0;  // 100 / 448 = 0.22 → 0
  expected[17] = 4, expected[18] = 8, expected[19] = 0;
  // A run of 1: its scale is 1/6 rounded to 8 bits, 0.171875; 1 / 0.171875 = 5.8 → 6, and 0.5 → 2.9 → 3.
  expected[20] = 6 * 0.171875, expected[21] = -3 * 0.171875;
  std::vector<double> out(lines.size(), -1);
  CHECK(cast_to_four_bits<double>({1, kLines, kLength, lines.data(), kLength, 0, out.data()}, false) == 1);
  CHECK(out == expected);

  std::vector<double> columns(lines.size()), wanted(lines.size());
  for (std::int64_t i = 0; i < kLines; ++i)
    for (std::int64_t j = 0; j < kLength; ++j) {
      const auto from = static_cast<std::size_t>(i * kLength + j), to = static_cast<std::size_t>(j * kLines + i);
      columns[to] = lines[from], wanted[to] = expected[from];
    }
  CHECK(cast_to_four_bits<double>({1, kLength, kLines, columns.data(), kLines, 0, out.data()}, true) == 1);
  CHECK(out == wanted);
}
