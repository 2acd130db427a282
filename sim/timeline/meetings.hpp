// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/timeline/digest.hpp"
#include "sim/timeline/span_index.hpp"

namespace orrery {

/// For each span the number of the meeting it takes part in, kNoSpan for those that meet nobody. The spans of one
/// collective on all recorded ranks of its communicator have the same number, and so have a send and its receive. The
/// n-th collective of a group on one rank meets the n-th of its partners; a send meets the receive that has the same
/// tag and comes in the same order.
std::vector<std::uint32_t> number_meetings(const Timeline& timeline, const PlanDigests& plans, const SpanTable& table);

}  // namespace orrery
