// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/host/op_context.hpp"
#include "sim/plan/kinds/collective.hpp"

namespace orrery {

/// What one member does of an all-to-all whose parts differ: fetches the rows that the others have for it. All inputs
/// and spans are ready, and stay until all members have returned.
void exchange_rows(const Collective& work, const OpContext<void>& c);

}  // namespace orrery
