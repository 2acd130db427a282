// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/base/dtype.hpp"
#include "sim/base/units.hpp"
#include "sim/plan/extent.hpp"

// Each header of this folder is one family of op kinds. A kind is a struct with
//   kName          the word in plans, reports and parameter files
//   kClass         the class that reports sum it under
//   visit(v)       calls v("field", field) for each field, for printing, hashing and plan files
//   amount(b)      its work under bindings b; never time
// and a comment that gives its operands in order (→ separates those read from those written; [x] is there if the field
// says so). A new kind is a struct here, its name in the list of sim/plan/work.hpp, its host function in runtime/host
// and, if it can be trained through, its rule in sim/strategy.

namespace orrery {

/// How a matrix of weights, or the keys and values of a cache, lie in memory: as they are computed with, or narrower.
/// Numbers of a run share a scale of 16 bits: 128 weights, or a key or value of one head.
enum class Quantised : std::uint8_t { None, F8, I8, I4 };
constexpr DType type_of(Quantised s, DType as_is) {
  return s == Quantised::None ? as_is : s == Quantised::F8 ? DType::F8E4M3 : s == Quantised::I8 ? DType::I8 : DType::I4;
}
constexpr std::int64_t kScaledRun = 128;
/// Memory of `elements` with their scales, one for each `run`.
constexpr Bytes size_quantised(Quantised s, DType as_is, std::int64_t elements, std::int64_t run = kScaledRun) {
  const std::int64_t scales = s == Quantised::None ? 0 : (elements + run - 1) / run;
  return size_of(type_of(s, as_is), elements) + size_of(DType::F16, scales);
}

/// What a product casts its operands to and multiplies there. Eight bits: f8e4m3, a gradient f8e5m2, with a scale for
/// each operand, or i8 with weights that lie in i8. Four bits: f4e2m1, of which 16 that follow upon each other along
/// the sum share a scale in f8e4m3 and all of an operand another one (NVFP4).
enum class Narrow : std::uint8_t { None, EightBits, FourBits };
/// Which operand of a product in eight bits is a gradient: its numbers lie further apart than those of values and
/// weights, so it takes two bits of exponent more in place of one of precision (the "hybrid" recipe of Micikevicius et
/// al., FP8 Formats for Deep Learning, 2022).
enum class GradientOperand : std::uint8_t { None, A, B };
/// What a product in eight bits does with the cast of its input, the operand that is neither weight nor gradient, which
/// lies in memory as numbers in f8e4m3 and a scale in f32: nothing, writes it for others, or reads it in place of the
/// input.
enum class InputCast : std::uint8_t { None, Written, Read };
/// What a dropout does with a mask of what it keeps, a byte a number.
enum class KeptMask : std::uint8_t { None, Written, Read };
constexpr DType type_of(Narrow narrow, Quantised weights, DType as_is) {
  if (narrow == Narrow::None) return as_is;
  if (narrow == Narrow::FourBits) return DType::F4E2M1;
  return weights == Quantised::I8 ? DType::I8 : DType::F8E4M3;
}
constexpr std::int64_t kFourBitRun = 16;
/// Memory of as many numbers as a product casts, with the scales of their runs.
constexpr Bytes size_narrow(Narrow narrow, std::int64_t numbers) {
  if (narrow == Narrow::None) return {};
  if (narrow == Narrow::EightBits) return size_of(DType::F8E4M3, numbers);
  return size_of(DType::F4E2M1, numbers) + size_of(DType::F8E4M3, (numbers + kFourBitRun - 1) / kFourBitRun);
}

enum class OpClass : std::uint8_t {
  Gemm,
  Attention,
  Norm,
  Elementwise,
  Embedding,
  Loss,
  Routing,
  Optimizer,
  Copy,
  Collective,
  PointToPoint,
  Host,
  Other
};
constexpr int kNumOpClasses = 13;
std::string_view name_of(OpClass c);

/// Work of one op on one rank: arithmetic, least traffic to and from device memory (each operand moved once), and what
/// it sends.
struct Amount {
  Flops flops;
  Bytes read, written;
  Bytes message;  // payload of a collective, a send or a copy between tiers
};

}  // namespace orrery
