// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a random number is a pure
// function of (key, counter), so every shard of a tensor draws the numbers of its own global elements.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define KERNELS_HD __host__ __device__
#else
#define KERNELS_HD
#endif

namespace orrery::kernels {

/// Names one sequence of random numbers: the seed of the run and a stream (one per op and step).
struct PhiloxKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
};

/// Four independent 32-bit random words.
struct PhiloxWords {
  std::uint32_t word[4];
};

/// The four words of block `block` of a key: the seed is the Philox key, (block, stream) its 128-bit counter.
/// Ten rounds of (c0, c1, c2, c3) ← (hi(M1·c2)⊕c1⊕k0, lo(M1·c2), hi(M0·c0)⊕c3⊕k1, lo(M0·c0)).
KERNELS_HD constexpr PhiloxWords philox(PhiloxKey key, std::uint64_t block) {
  std::uint32_t c0 = static_cast<std::uint32_t>(block), c1 = static_cast<std::uint32_t>(block >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(key.stream), c3 = static_cast<std::uint32_t>(key.stream >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key.seed), k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// The word of one global element: word g % 4 of block g / 4.
KERNELS_HD constexpr std::uint32_t philox_word(PhiloxKey key, std::uint64_t element) {
  return philox(key, element / 4).word[element % 4];
}

/// Uniform in (0, 1): (word + ½) · 2⁻³². Exact in double; in float the result may round to 1.
KERNELS_HD constexpr double philox_uniform(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

}  // namespace orrery::kernels
