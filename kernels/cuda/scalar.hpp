// SPDX-License-Identifier: Apache-2.0
// Scalars of the GPU's kernels. Kernels compute in float whatever they load and store. Without nvcc the same code is
// compiled for the host, where tests run it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

// Of functions that a GPU runs: as the compiler likes, in place, as calls (of what is large and used in several places).
#ifdef __CUDACC__
#define KERNELS_GPU __device__
#define KERNELS_GPU_INLINE __device__ __forceinline__
#define KERNELS_UNROLL _Pragma("unroll")
#define KERNELS_GPU_CALLED __device__ __noinline__
#else
#define KERNELS_GPU
#define KERNELS_GPU_INLINE inline
#define KERNELS_UNROLL
#define KERNELS_GPU_CALLED
#endif

namespace orrery::kernels::cuda {

/// bfloat16 and IEEE half precision as they lie in memory.
struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

/// A word of 16 bytes.
struct alignas(16) Quad {
  std::uint32_t word[4];
};

template <class To, class From>
KERNELS_GPU_INLINE To reinterpret_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

KERNELS_GPU_INLINE float to_float(float x) { return x; }
KERNELS_GPU_INLINE float to_float(double x) { return static_cast<float>(x); }
KERNELS_GPU_INLINE float to_float(bf16 x) { return reinterpret_bits<float>(static_cast<std::uint32_t>(x.bits) << 16); }
/// Exact: a subnormal half is a normal float.
KERNELS_GPU_INLINE float to_float(f16 x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return reinterpret_bits<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  const float value = magnitude < 0x400u ? static_cast<float>(magnitude) * 0x1p-24f
                                         : reinterpret_bits<float>((magnitude << 13) + 0x38000000u);
  return reinterpret_bits<float>(reinterpret_bits<std::uint32_t>(value) | sign);
#endif
}

/// To the nearest, ties to even; NaN stays NaN.
KERNELS_GPU_INLINE bf16 round_to_bf16(float x) {
  const auto bits = reinterpret_bits<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
KERNELS_GPU_INLINE f16 round_to_f16(float x) {
#ifdef __CUDA_ARCH__
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  const auto bits = reinterpret_bits<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // 65520 and more
  if (magnitude < 0x38800000u) {  // below 2⁻¹⁴: a multiple of 2⁻²⁴, which adding 2⁻¹ rounds to
    const float shifted = reinterpret_bits<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (reinterpret_bits<std::uint32_t>(shifted) - 0x3f000000u))};
  }
  return {static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13))};
#endif
}

template <class T>
struct Rounded;
template <>
struct Rounded<float> {
  static KERNELS_GPU_INLINE float of(float x) { return x; }
};
template <>
struct Rounded<double> {
  static KERNELS_GPU_INLINE double of(float x) { return x; }
};
template <>
struct Rounded<bf16> {
  static KERNELS_GPU_INLINE bf16 of(float x) { return round_to_bf16(x); }
};
template <>
struct Rounded<f16> {
  static KERNELS_GPU_INLINE f16 of(float x) { return round_to_f16(x); }
};
template <class T>
KERNELS_GPU_INLINE T from_float(float x) {
  return Rounded<T>::of(x);
}

/// Types that statistics (means, log-sum-exps, losses, moments) may have beside the tensors of an op.
enum class NumberType : std::uint8_t { F32, F64, BF16, F16 };

/// Numbers whose type is known at run time only: few of them are loaded, so a uniform branch costs nothing.
struct Numbers {
  void* at = nullptr;
  NumberType type = NumberType::F32;

  KERNELS_GPU_INLINE bool there() const { return at != nullptr; }
  KERNELS_GPU_INLINE double exact(std::int64_t i) const {
    return type == NumberType::F64 ? static_cast<const double*>(at)[i] : static_cast<double>(get(i));
  }
  KERNELS_GPU_INLINE float get(std::int64_t i) const {
    if (type == NumberType::F32) return static_cast<const float*>(at)[i];
    if (type == NumberType::BF16) return to_float(static_cast<const bf16*>(at)[i]);
    if (type == NumberType::F16) return to_float(static_cast<const f16*>(at)[i]);
    return static_cast<float>(static_cast<const double*>(at)[i]);
  }
  KERNELS_GPU_INLINE void set(std::int64_t i, double x) const {
    if (type == NumberType::F32) static_cast<float*>(at)[i] = static_cast<float>(x);
    if (type == NumberType::BF16) static_cast<bf16*>(at)[i] = round_to_bf16(static_cast<float>(x));
    if (type == NumberType::F16) static_cast<f16*>(at)[i] = round_to_f16(static_cast<float>(x));
    if (type == NumberType::F64) static_cast<double*>(at)[i] = x;
  }
};

/// N numbers that one access of at most 16 bytes moves.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};
template <class T>
constexpr int kPack = static_cast<int>(16 / sizeof(T));

template <class T, int N>
KERNELS_GPU_INLINE void load(const T* from, float (&to)[N]) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
  KERNELS_UNROLL
  for (int i = 0; i < N; ++i) to[i] = to_float(pack.value[i]);
}
template <class T, int N>
KERNELS_GPU_INLINE void store(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
  KERNELS_UNROLL
  for (int i = 0; i < N; ++i) pack.value[i] = from_float<T>(from[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

constexpr float kInfinity = __builtin_huge_valf();

/// 1/x; on the device to the last bit or the next.
KERNELS_GPU_INLINE float inverse(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

KERNELS_GPU_INLINE float larger(float a, float b) { return a > b ? a : b; }
template <class I>
KERNELS_GPU_INLINE I smaller_of(I a, I b) {
  return a < b ? a : b;
}
template <class I>
KERNELS_GPU_INLINE I larger_of(I a, I b) {
  return a > b ? a : b;
}
template <class I>
constexpr I blocks_of(I n, I each) {
  return (n + each - 1) / each;
}

}  // namespace orrery::kernels::cuda
