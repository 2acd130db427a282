// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "sim/plan/plan.hpp"

namespace orrery {

// The bits of an operand are those of its tensor above those of its use. Millions of them are read and written here in
// pieces that the compiler makes vectors of.

/// The difference of the bits of two operands that use tensors alike, one of which stands so far behind the other.
inline std::uint32_t difference_when_moved(std::uint32_t by) {
  return std::bit_cast<std::uint32_t>(Operand{TensorId{std::size_t{by}}, Access{}});
}

/// Whether two operands are the same use of the same tensor.
inline bool is_same(Operand x, Operand y) { return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y); }

constexpr std::size_t kOperandPiece = 32;

/// How many of `count` operands differ from the others by something else.
inline std::uint32_t count_unlike(const Operand* mine, const Operand* like, std::size_t count,
                                  std::uint32_t difference) {
  std::uint32_t a[kOperandPiece], b[kOperandPiece], unlike = 0;
  std::size_t k = 0;
  for (; k + kOperandPiece <= count; k += kOperandPiece) {
    std::memcpy(a, mine + k, sizeof(a));
    std::memcpy(b, like + k, sizeof(b));
    for (std::size_t i = 0; i < kOperandPiece; ++i) unlike += a[i] - b[i] != difference ? 1u : 0u;
  }
  for (; k < count; ++k)
    unlike += std::bit_cast<std::uint32_t>(mine[k]) - std::bit_cast<std::uint32_t>(like[k]) != difference ? 1u : 0u;
  return unlike;
}

/// Writes operands that differ from others by so much.
inline void copy_moved(Operand* out, const Operand* like, std::size_t count, std::uint32_t difference) {
  std::uint32_t a[kOperandPiece];
  std::size_t k = 0;
  for (; k + kOperandPiece <= count; k += kOperandPiece) {
    std::memcpy(a, like + k, sizeof(a));
    for (std::size_t i = 0; i < kOperandPiece; ++i) a[i] += difference;
    std::memcpy(static_cast<void*>(out + k), a, sizeof(a));
  }
  for (; k < count; ++k) out[k] = std::bit_cast<Operand>(std::bit_cast<std::uint32_t>(like[k]) + difference);
}

/// Sets bits of operands.
inline void set_bits(Operand* operands, const std::uint32_t* bits, std::size_t count) {
  std::uint32_t a[kOperandPiece];
  std::size_t k = 0;
  for (; k + kOperandPiece <= count; k += kOperandPiece) {
    std::memcpy(a, operands + k, sizeof(a));
    for (std::size_t i = 0; i < kOperandPiece; ++i) a[i] |= bits[k + i];
    std::memcpy(static_cast<void*>(operands + k), a, sizeof(a));
  }
  for (; k < count; ++k) operands[k] = std::bit_cast<Operand>(std::bit_cast<std::uint32_t>(operands[k]) | bits[k]);
}

}  // namespace orrery
