// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "sim/plan/plan.hpp"

namespace orrery {

// The bits of an operand are those of its tensor above those of its use. Millions of them are read and written here in
// Pieces that the compiler makes vectors of.

/// The difference of the bits of two operands that use tensors alike, one of which stands so far behind the other.
inline std::uint32_t difference_when_moved(std::uint32_t by) {
  return std::bit_cast<std::uint32_t>(Operand{TensorId{std::size_t{by}}, Access{}});
}

/// Whether two operands are the same use of the same tensor.
inline bool is_same(Operand x, Operand y) { return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y); }

/// Four words that are added, compared and combined together.
using Words = std::uint32_t __attribute__((vector_size(16)));
constexpr std::size_t kWords = sizeof(Words) / sizeof(std::uint32_t);

/// Of four operands, or four words of something else.
inline Words load_words(const void* from, std::size_t first) {
  Words out;
  std::memcpy(&out, static_cast<const char*>(from) + first * sizeof(std::uint32_t), sizeof(out));
  return out;
}
inline void store_words(Words words, Operand* to) { std::memcpy(static_cast<void*>(to), &words, sizeof(words)); }
inline Words words_of(std::uint32_t word) { return Words{word, word, word, word}; }
inline std::uint32_t load_word(const void* from, std::size_t at) {
  std::uint32_t out;
  std::memcpy(&out, static_cast<const char*>(from) + at * sizeof(out), sizeof(out));
  return out;
}

/// How many of `count` words differ from the others by something else.
inline std::uint32_t count_unlike(const void* mine, const void* like, std::size_t count, std::uint32_t difference) {
  Words unlike{};
  std::size_t k = 0;
  for (; k + kWords <= count; k += kWords)
    unlike -= std::bit_cast<Words>(load_words(mine, k) - load_words(like, k) != words_of(difference));
  std::uint32_t all = unlike[0] + unlike[1] + unlike[2] + unlike[3];
  for (; k < count; ++k) all += load_word(mine, k) - load_word(like, k) != difference ? 1u : 0u;
  return all;
}

/// Writes operands that differ from others by so much.
inline void copy_moved(Operand* out, const Operand* like, std::size_t count, std::uint32_t difference) {
  std::size_t k = 0;
  for (; k + kWords <= count; k += kWords) store_words(load_words(like, k) + words_of(difference), out + k);
  for (; k < count; ++k) out[k] = std::bit_cast<Operand>(std::bit_cast<std::uint32_t>(like[k]) + difference);
}

/// Sets bits of operands.
inline void set_bits(Operand* operands, const std::uint32_t* bits, std::size_t count) {
  std::size_t k = 0;
  for (; k + kWords <= count; k += kWords) store_words(load_words(operands, k) | load_words(bits, k), operands + k);
  for (; k < count; ++k) operands[k] = std::bit_cast<Operand>(std::bit_cast<std::uint32_t>(operands[k]) | bits[k]);
}

}  // namespace orrery
