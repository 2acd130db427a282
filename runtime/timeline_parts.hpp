// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/peers.hpp"
#include "sim/timeline/timeline.hpp"

namespace orrery {

/// Makes of what each process has recorded of its own ranks the timeline of all of them; each gets the same. Their
/// clocks start at an exchange of all, so they agree to within the time of a message. An execution has ended when it
/// has on all of them. All processes ask.
void join_parts(Timeline& mine, Peers& peers);

}  // namespace orrery
