// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/elementwise.hpp"

#include <algorithm>

#include "kernels/host/simd.hpp"

namespace orrery::kernels {

template <class T>
void add(std::int64_t n, const T* a, const T* b, T* y) {
  map(n, y, [&](auto at) { return at(a) + at(b); });
}

template <class T>
void scale(std::int64_t n, T alpha, const T* x, T* y) {
  map(n, y, [&](auto at) { return alpha * at(x); });
}

template <class T>
void axpy(std::int64_t n, T alpha, const T* x, T* y) {
  map(n, y, [&](auto at) { return at(y) + alpha * at(x); });
}

template <class T>
void multiply(std::int64_t n, const T* a, const T* b, T* y) {
  map(n, y, [&](auto at) { return at(a) * at(b); });
}

template <class T>
void fill(std::int64_t n, T value, T* y) {
  std::fill(y, y + n, value);
}

template <class T>
void copy(std::int64_t n, const T* x, T* y) {
  if (n > 0) std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(T));
}

template <class T>
void copy_rows(const CopyRowsArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* src = a.src + r * a.src_stride.value_or(a.cols);
    T* dst = a.dst + r * a.cols;
    if (a.write == Write::Overwrite)
      copy(a.cols, src, dst);
    else
      add(a.cols, dst, src, dst);
  }
}

template <class T>
void bias_add(std::int64_t rows, std::int64_t cols, const T* x, const T* bias, T* y) {
  for (std::int64_t r = 0; r < rows; ++r) add(cols, x + r * cols, bias, y + r * cols);
}

template <class T>
void column_sum(std::int64_t rows, std::int64_t cols, const T* x, T* sum, Write write) {
  if (write == Write::Overwrite) fill(cols, T(0), sum);
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const T *x0 = x + r * cols, *x1 = x0 + cols, *x2 = x1 + cols, *x3 = x2 + cols;
    map(cols, sum, [&](auto at) { return (((at(sum) + at(x0)) + at(x1)) + at(x2)) + at(x3); });
  }
  for (; r < rows; ++r) add(cols, sum, x + r * cols, sum);
}

template <class T>
void transpose2d(std::int64_t rows, std::int64_t cols, const T* x, T* y) {
  constexpr std::int64_t kStep = 16;  // a square of 16 × 16 lies in L1 on both sides
  for (std::int64_t r0 = 0; r0 < rows; r0 += kStep)
    for (std::int64_t c0 = 0; c0 < cols; c0 += kStep)
      for (std::int64_t c = c0; c < std::min(c0 + kStep, cols); ++c)
        for (std::int64_t r = r0; r < std::min(r0 + kStep, rows); ++r) y[c * rows + r] = x[r * cols + c];
}

template <class T>
void swap_axes(std::int64_t outer, std::int64_t a, std::int64_t b, std::int64_t inner, const T* x, T* y) {
  constexpr std::int64_t kStep = 16;  // of both axes at a time: short rows share their cache lines
  for (std::int64_t o = 0; o < outer; ++o, x += a * b * inner, y += a * b * inner) {
    if (inner == 1) {
      transpose2d(a, b, x, y);
      continue;
    }
    for (std::int64_t i0 = 0; i0 < a; i0 += kStep)
      for (std::int64_t j = 0; j < b; ++j)
        for (std::int64_t i = i0; i < std::min(i0 + kStep, a); ++i)
          copy(inner, x + (i * b + j) * inner, y + (j * a + i) * inner);
  }
}

void cast(std::int64_t n, const float* x, double* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<double>(x[i]);
}

void cast(std::int64_t n, const double* x, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
}

#define KERNELS_INSTANTIATE(T)                                                   \
  template void add<T>(std::int64_t, const T*, const T*, T*);                    \
  template void scale<T>(std::int64_t, T, const T*, T*);                         \
  template void axpy<T>(std::int64_t, T, const T*, T*);                          \
  template void multiply<T>(std::int64_t, const T*, const T*, T*);               \
  template void fill<T>(std::int64_t, T, T*);                                    \
  template void copy<T>(std::int64_t, const T*, T*);                             \
  template void copy_rows<T>(const CopyRowsArgs<T>&);                            \
  template void bias_add<T>(std::int64_t, std::int64_t, const T*, const T*, T*); \
  template void column_sum<T>(std::int64_t, std::int64_t, const T*, T*, Write);  \
  template void transpose2d<T>(std::int64_t, std::int64_t, const T*, T*);
KERNELS_INSTANTIATE(float)
KERNELS_INSTANTIATE(double)
#undef KERNELS_INSTANTIATE

template void swap_axes<float>(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const float*, float*);
template void swap_axes<double>(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const double*, double*);
template void swap_axes<std::int32_t>(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const std::int32_t*,
                                      std::int32_t*);

}  // namespace orrery::kernels
