// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// A = L·Lᵀ in place: reads and writes the lower triangle of a[n,n] (row stride lda). Returns the number of rows
/// factored: n, or the index of the first pivot that is not positive.
template <class T>
std::int64_t cholesky(std::int64_t n, T* a, std::int64_t lda);

enum class Triangle { Lower, LowerTransposed };

/// X ← L⁻¹·X or L⁻ᵀ·X in place, x[n,rhs] with row stride ldx, L the lower triangle of l[n,n] with row stride ldl.
template <class T>
struct TriangularSolveArgs {
  Triangle triangle = Triangle::Lower;
  std::int64_t n = 0, rhs = 1;
  const T* l = nullptr;
  std::int64_t ldl = 0;
  T* x = nullptr;
  std::int64_t ldx = 0;
};

template <class T>
void solve_triangular(const TriangularSolveArgs<T>& args);

/// X ← A⁻¹·X for symmetric positive definite a[n,n], which is overwritten by its factor. Returns what `cholesky`
/// returns; x is unchanged if that is less than n.
template <class T>
struct SymmetricSolveArgs {
  std::int64_t n = 0, rhs = 1;
  T* a = nullptr;
  std::int64_t lda = 0;
  T* x = nullptr;
  std::int64_t ldx = 0;
};

template <class T>
std::int64_t solve_symmetric(const SymmetricSolveArgs<T>& args);

}  // namespace orrery::kernels
