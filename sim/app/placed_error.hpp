// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/base/option_error.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {

/// Options that are right alone may not go together, which is found where a plan is made. An error without a place gets
/// that of the first option of those it is about (`OptionError::keys`) that the scenario's strategy or workload says;
/// else of the strategy, or of the workload where one device has it all.
UserError placed(const UserError& error, const Node& scenario);

/// The same of an error that reading `part` of a scenario gave: the option in it, else `part` itself.
UserError placed_in(const UserError& error, const Node& part);

}  // namespace orrery
