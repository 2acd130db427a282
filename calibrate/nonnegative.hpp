// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Dense>

namespace orrery {

/// min |a·x − b|² over x ≥ 0: the active-set method of Lawson and Hanson, from `start`, which is nowhere negative: the
/// nearer to the solution, the fewer systems are solved.
Eigen::VectorXd nonnegative_least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& b,
                                          const Eigen::VectorXd& start);

}  // namespace orrery
