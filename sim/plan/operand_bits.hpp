// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

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

/// Goes through `count` operands in pieces of 32, of 4 and of one: f(the first of the piece, how many as a constant).
template <class F>
void in_pieces(std::size_t count, F f) {
  std::size_t k = 0;
  for (; k + 32 <= count; k += 32) f(k, std::integral_constant<std::size_t, 32>{});
  for (; k + 4 <= count; k += 4) f(k, std::integral_constant<std::size_t, 4>{});
  for (; k < count; ++k) f(k, std::integral_constant<std::size_t, 1>{});
}

/// How many of `count` operands differ from the others by something else.
inline std::uint32_t count_unlike(const Operand* mine, const Operand* like, std::size_t count,
                                  std::uint32_t difference) {
  std::uint32_t unlike = 0;
  in_pieces(count, [&](std::size_t k, auto piece) {
    std::uint32_t a[piece], b[piece];
    std::memcpy(a, mine + k, sizeof(a));
    std::memcpy(b, like + k, sizeof(b));
    for (std::size_t i = 0; i < piece; ++i) unlike += a[i] - b[i] != difference ? 1u : 0u;
  });
  return unlike;
}

/// Writes operands that differ from others by so much.
inline void copy_moved(Operand* out, const Operand* like, std::size_t count, std::uint32_t difference) {
  in_pieces(count, [&](std::size_t k, auto piece) {
    std::uint32_t a[piece];
    std::memcpy(a, like + k, sizeof(a));
    for (std::size_t i = 0; i < piece; ++i) a[i] += difference;
    std::memcpy(static_cast<void*>(out + k), a, sizeof(a));
  });
}

/// Sets bits of operands.
inline void set_bits(Operand* operands, const std::uint32_t* bits, std::size_t count) {
  in_pieces(count, [&](std::size_t k, auto piece) {
    std::uint32_t a[piece];
    std::memcpy(a, operands + k, sizeof(a));
    for (std::size_t i = 0; i < piece; ++i) a[i] |= bits[k + i];
    std::memcpy(static_cast<void*>(operands + k), a, sizeof(a));
  });
}

}  // namespace orrery
