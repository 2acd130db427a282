// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/processor.hpp"

namespace orrery::kernels {

std::string_view missing_instructions() {
#ifdef __AVX512F__
  if (!__builtin_cpu_supports("avx512f")) return "AVX-512";
#endif
#ifdef __AVX512VL__
  if (!__builtin_cpu_supports("avx512vl")) return "AVX-512VL";
#endif
#ifdef __AVX512BF16__
  if (!__builtin_cpu_supports("avx512bf16")) return "AVX-512BF16";
#endif
#ifdef __AVX2__
  if (!__builtin_cpu_supports("avx2")) return "AVX2";
#endif
#ifdef __FMA__
  if (!__builtin_cpu_supports("fma")) return "FMA";
#endif
  return {};
}

}  // namespace orrery::kernels
