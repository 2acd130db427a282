// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace orrery {

/// While it lives, numbers too small to be normal (below 1.2e-38 in float32) count as zero in this thread, both those
/// that are read and results. Some processors take a hundred times as long for each: on a Sapphire Rapids the products
/// behind an attention whose gradients had come to nothing took 14 ms instead of 3. TensorFlow's executor does the
/// same. On processors other than x86: nothing.
class SubnormalsAreZero {
 public:
#if defined(__SSE2__)
  SubnormalsAreZero() : before_{_mm_getcsr()} { _mm_setcsr(before_ | kFlushResults | kReadAsZero); }
  ~SubnormalsAreZero() { _mm_setcsr(before_); }
#else
  SubnormalsAreZero() = default;
#endif
  SubnormalsAreZero(const SubnormalsAreZero&) = delete;
  SubnormalsAreZero& operator=(const SubnormalsAreZero&) = delete;

 private:
#if defined(__SSE2__)
  static constexpr unsigned kFlushResults = 0x8000, kReadAsZero = 0x0040;  // of MXCSR
  unsigned before_;
#endif
};

}  // namespace orrery
