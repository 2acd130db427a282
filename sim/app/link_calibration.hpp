// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/app/command.hpp"

namespace orrery {

/// Fits published tables (scenarios/tables.md) and writes the parameter files of what they measured into `folder`;
/// empty: tells what would be fitted. Rows of the parts `random` and `largest` are not seen. Gives the exit code.
int fit_tables(const std::vector<std::string>& paths, const std::string& folder, AppContext& context);

}  // namespace orrery
