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

/// By the definition. E4M3: (1 + m/8)·2^(e−7), m·2⁻⁹ where e is 0; 0x7f is no number. E5M2: (1 + m/4)·2^(e−15), m·2⁻¹⁶
/// where e is 0; from 0x7c on infinity, and no numbers.
double value_of(int code, EightBits format) {
  const bool gradient = format == EightBits::E5M2;
  if ((code & 0x7f) >= (gradient ? 0x7c : 0x7f)) return NAN;
  const int exponent = gradient ? code >> 2 & 31 : code >> 3 & 15, bias = gradient ? 15 : 7;
  const double part = gradient ? (code & 3) / 4.0 : (code & 7) / 8.0;
  const double size = exponent == 0 ? part * std::pow(2.0, 1 - bias) : (1 + part) * std::pow(2.0, exponent - bias);
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
double nearest(double x, EightBits format) {
  return nearest_of(x, 256, [&](int code) { return value_of(code, format); });
}
int on_device(float x, EightBits format) {
  return format == EightBits::E4M3 ? cuda::round_to_eight_bits<cuda::e4m3>(x).bits
                                   : cuda::round_to_eight_bits<cuda::e5m2>(x).bits;
}

/// Of 4 bits: (1 + m/2)·2^(e−1), m/2 where e is 0.
double value_of_four(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double size = exponent == 0 ? mantissa / 2.0 : (1 + mantissa / 2.0) * std::pow(2.0, exponent - 1);
  return code & 8 ? -size : size;
}

}  // namespace

TEST_CASE("numbers are rounded to the nearest of 8 bits, on the host and on the device", "[kernels]") {
  const EightBits format = GENERATE(EightBits::E4M3, EightBits::E5M2);
  std::vector<double> numbers{0,         -0.0,       448,        447,  463,      465,   1e9,   -1e9,
                              1.0 / 512, 1.0 / 1024, 3.0 / 1024, 1e-9, 0.015625, 57344, 57343, 61441};
  for (int code = 0; code < 256; ++code) {
    if (std::isnan(value_of(code, format))) continue;
    numbers.push_back(value_of(code, format));
    if (code % 128 > 0)  // half way: to even
      numbers.push_back((value_of(code, format) + value_of(code - 1, format)) / 2);
  }
  std::mt19937_64 random{Catch::rngSeed()};
  std::uniform_real_distribution<double> exponent{-20, 17}, sign{-1, 1};
  for (int i = 0; i < 2000; ++i) numbers.push_back(std::copysign(std::exp2(exponent(random)), sign(random)));
  for (const double exact : numbers) {
    const double x = static_cast<float>(exact);
    INFO(x << (format == EightBits::E4M3 ? " E4M3" : " E5M2"));
    CHECK(round_to_eight_bits(x, format) == nearest(x, format));
    CHECK(value_of(on_device(static_cast<float>(x), format), format) == nearest(x, format));
  }
  CHECK(std::isnan(round_to_eight_bits(NAN, format)));
  CHECK((on_device(NAN, format) & 0x7f) == 0x7f);
  CHECK(value_of(on_device(std::numeric_limits<float>::infinity(), format), format) == largest_of(format));
}

TEST_CASE("numbers of 8 bits go to memory and come back as they were", "[kernels]") {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    INFO(code);
    if ((code & 0x7f) == 0x7f) {
      CHECK(std::isnan(e4m3_value(byte)));
      CHECK(std::isnan(to_float(cuda::e4m3{byte})));
    } else {
      CHECK(e4m3_value(byte) == value_of(code, EightBits::E4M3));
      CHECK(e4m3_code(e4m3_value(byte)) == byte);
      CHECK(static_cast<double>(to_float(cuda::e4m3{byte})) == value_of(code, EightBits::E4M3));
    }
  }
  CHECK((e4m3_code(NAN) & 0x7f) == 0x7f);
}

TEST_CASE("an operand is cast so that its largest number becomes the largest of 8 bits", "[kernels]") {
  // max |x| = 7, s = 7/448 = 1/64: 7 → 448, 1 → 64, 0.015 → 0.96 → nearest multiple of 1/16: 0.9375.
  const std::vector<float> in{1, 2, -99, -7, 0.015f, -99};
  std::vector<float> out(4, -1);
  const float scale = cast_to_eight_bits<float>({1, 2, 2, in.data(), 3, 0, out.data()}, EightBits::E4M3);
  CHECK(scale == 7.0f / 448);
  CHECK(out == std::vector<float>{64, 128, -448, 0.9375f});
  const std::vector<float> zeros(4);
  CHECK(cast_to_eight_bits<float>({1, 2, 2, zeros.data(), 2, 0, out.data()}, EightBits::E4M3) == 1);
  CHECK(out == zeros);
  // A gradient: s = 7/57344 = 2⁻¹³: 7 → 57344, 1 → 8192, 0.015 → 122.9 → nearest multiple of 16: 128.
  CHECK(cast_to_eight_bits<float>({1, 2, 2, in.data(), 3, 0, out.data()}, EightBits::E5M2) == 7.0f / 57344);
  CHECK(out == std::vector<float>{8192, 16384, -57344, 128});
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
