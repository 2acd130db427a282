// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/base/yaml.hpp"

namespace orrery {

/// Options that are right alone may not go together, which is found where a plan is made. An error without a place gets
/// that of the option which it names first, of those that the scenario's strategy and workload say; else of the
/// strategy, or of the workload where one device has it all.
UserError placed(const UserError& error, const Node& scenario);

}  // namespace orrery
