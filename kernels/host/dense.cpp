// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/dense.hpp"

#include <cmath>

#include "kernels/host/elementwise.hpp"
#include "kernels/host/simd.hpp"

namespace orrery::kernels {

// Row by row: l_ij = (a_ij − Σ_{p<j} l_ip·l_jp)/l_jj, l_ii = √(a_ii − Σ_{p<i} l_ip²).
template <class T>
std::int64_t cholesky(std::int64_t n, T* a, std::int64_t lda) {
  for (std::int64_t i = 0; i < n; ++i) {
    T* row = a + i * lda;
    for (std::int64_t j = 0; j <= i; ++j) {
      const T* other = a + j * lda;
      const T rest = row[j] - reduce_add<T>(j, [&](auto at) { return at(row) * at(other); });
      if (j < i)
        row[j] = rest / other[j];
      else if (rest > 0)
        row[i] = std::sqrt(rest);
      else
        return i;
    }
  }
  return n;
}

template <class T>
void solve_triangular(const TriangularSolveArgs<T>& s) {
  const bool forward = s.triangle == Triangle::Lower;
  for (std::int64_t step = 0; step < s.n; ++step) {
    const std::int64_t i = forward ? step : s.n - 1 - step;
    T* x = s.x + i * s.ldx;
    for (std::int64_t p = forward ? 0 : i + 1; p < (forward ? i : s.n); ++p)
      axpy(s.rhs, forward ? -s.l[i * s.ldl + p] : -s.l[p * s.ldl + i], s.x + p * s.ldx, x);
    scale(s.rhs, T(1) / s.l[i * s.ldl + i], x, x);
  }
}

template <class T>
std::int64_t solve_symmetric(const SymmetricSolveArgs<T>& s) {
  const std::int64_t factored = cholesky(s.n, s.a, s.lda);
  if (factored < s.n) return factored;
  for (const Triangle triangle : {Triangle::Lower, Triangle::LowerTransposed})
    solve_triangular<T>({.triangle = triangle, .n = s.n, .rhs = s.rhs, .l = s.a, .ldl = s.lda, .x = s.x, .ldx = s.ldx});
  return s.n;
}

template std::int64_t cholesky<float>(std::int64_t, float*, std::int64_t);
template std::int64_t cholesky<double>(std::int64_t, double*, std::int64_t);
template void solve_triangular<float>(const TriangularSolveArgs<float>&);
template void solve_triangular<double>(const TriangularSolveArgs<double>&);
template std::int64_t solve_symmetric<float>(const SymmetricSolveArgs<float>&);
template std::int64_t solve_symmetric<double>(const SymmetricSolveArgs<double>&);

}  // namespace orrery::kernels
