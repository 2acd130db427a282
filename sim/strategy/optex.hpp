// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "sim/strategy/strategy.hpp"

namespace orrery {

/// First-order optimisation with approximately parallelised iterations (OptEx, arXiv 2402.11427): N ranks compute
/// gradients at N points in a row, of which all but the first are reached with predicted gradients.
std::unique_ptr<Strategy> make_optex(const Node& options);
std::vector<OptionInfo> optex_options();

}  // namespace orrery
