// SPDX-License-Identifier: Apache-2.0
#include "calibrate/nonnegative.hpp"

#include <algorithm>
#include <vector>

namespace orrery {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

constexpr int kFew = 24;  // features: all laws have fewer
// Of few features, on the stack: thousands of small systems are solved.
using FewMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor, kFew, kFew>;
using FewVector = Eigen::Matrix<double, Eigen::Dynamic, 1, Eigen::ColMajor, kFew, 1>;

/// Least squares without negative coefficients, by the active sets of Lawson and Hanson.
template <class M, class V>
class NonNegative {
 public:
  NonNegative(const M& a, const V& b) : a_{a}, b_{b}, active_(static_cast<std::size_t>(a.cols()), false) {}

  /// From `x`, which is nowhere negative: the nearer to the solution, the fewer systems are solved.
  V solve(V x) {
    const Eigen::Index n = a_.cols();
    for (int j = 0; j < n; ++j) active_[static_cast<std::size_t>(j)] = x[j] > 0;
    settle(x);
    const double tolerance = 1e-12 * std::max(1e-300, (a_.transpose() * b_).cwiseAbs().maxCoeff());
    for (Eigen::Index round = 0; round < 3 * n; ++round) {
      const V gradient = a_.transpose() * (b_ - a_ * x);
      int best = -1;
      for (int j = 0; j < n; ++j)
        if (!is_active(j) && gradient[j] > tolerance && (best < 0 || gradient[j] > gradient[best])) best = j;
      if (best < 0) break;
      active_[static_cast<std::size_t>(best)] = true;
      settle(x);
    }
    return x;
  }

 private:
  bool is_active(Eigen::Index j) const { return active_[static_cast<std::size_t>(j)]; }

  /// Moves x to the solution over the active columns; those in which it would be negative become inactive.
  void settle(V& x) {
    if (std::find(active_.begin(), active_.end(), true) == active_.end()) return;
    for (Eigen::Index i = 0; i < 3 * a_.cols(); ++i) {
      const V z = solve_active();
      bool inside = true;
      for (int j = 0; j < a_.cols(); ++j) inside = inside && (!is_active(j) || z[j] > 0);
      if (inside) {
        x = z;
        return;
      }
      step_towards(x, z);
    }
  }

  /// The least-squares solution over the active columns; zero elsewhere.
  V solve_active() {
    columns_.clear();
    for (int j = 0; j < a_.cols(); ++j)
      if (is_active(j)) columns_.push_back(j);
    M part(a_.rows(), static_cast<Eigen::Index>(columns_.size()));
    for (std::size_t j = 0; j < columns_.size(); ++j) part.col(static_cast<Eigen::Index>(j)) = a_.col(columns_[j]);
    const V solved = part.colPivHouseholderQr().solve(b_);
    V x = V::Zero(a_.cols());
    for (std::size_t j = 0; j < columns_.size(); ++j) x[columns_[j]] = solved[static_cast<Eigen::Index>(j)];
    return x;
  }

  /// Moves from x towards z as far as no coefficient falls below zero; those that reach it leave the active set.
  void step_towards(V& x, const V& z) {
    double alpha = 1;
    for (int j = 0; j < x.size(); ++j)
      if (is_active(j) && z[j] <= 0) alpha = std::min(alpha, x[j] / (x[j] - z[j]));
    x += alpha * (z - x);
    for (int j = 0; j < x.size(); ++j)
      if (is_active(j) && x[j] <= 1e-15) active_[static_cast<std::size_t>(j)] = false, x[j] = 0;
  }

  const M& a_;
  const V& b_;
  std::vector<bool> active_;
  std::vector<int> columns_;
};

}  // namespace

/// By as many equations as unknowns that have the same solutions: of A = QR those of R, with the first rows of Qᵀb. The
/// others do not depend on x.
Vector nonnegative_least_squares(const Matrix& a, const Vector& b, const Vector& start) {
  const Eigen::HouseholderQR<Matrix> qr{a};
  const Eigen::Index rows = std::min(a.rows(), a.cols());
  const Matrix r = qr.matrixQR().topRows(rows).triangularView<Eigen::Upper>();
  const Vector rotated = (qr.householderQ().adjoint() * b).head(rows);
  if (a.cols() > kFew) return NonNegative<Matrix, Vector>{r, rotated}.solve(start);
  const FewMatrix few = r;
  const FewVector few_rotated = rotated, few_start = start;
  return NonNegative<FewMatrix, FewVector>{few, few_rotated}.solve(few_start);
}

}  // namespace orrery
