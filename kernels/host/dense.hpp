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

enum class CovarianceKind { Matern52, Matern32, SquaredExponential };

/// κ of points at a distance r (its square is given), in units of the length.
double covariance(CovarianceKind kind, double squared_distance);

/// k[i,j] = covariance of rows a_i and h_j of `columns` numbers, over all of them or those that `coordinates` names.
template <class T>
struct CovariancesArgs {
  CovarianceKind kind = CovarianceKind::Matern52;
  std::int64_t points = 1, history = 1, columns = 0, used = 0;
  double length = 1;
  const T* a = nullptr;
  const T* h = nullptr;
  const std::int32_t* coordinates = nullptr;  // [used]; null: all
  T* k = nullptr;
};

/// Where a is h, half of them are computed and all are written.
template <class T>
void covariances(const CovariancesArgs<T>& args);

}  // namespace orrery::kernels
