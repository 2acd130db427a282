// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/cuda/driver.hpp"
#include "runtime/rendezvous.hpp"
#include "sim/plan/plan.hpp"

namespace orrery {

/// Whether a meeting has members of other processes.
bool is_crossing(const Meeting& meeting);

/// Throws UserError for such meetings that a library cannot do: rows whose number depends on data, barriers, messages
/// that are not contiguous.
void check_crossings(std::span<const std::unique_ptr<Meeting>> meetings, const Plan& plan);

/// Enqueues what the members of this process do, each on the stream of its queue (in the order of the group's seats). A
/// message is a broadcast from its sender to its receiver; each pair of ranks has a communicator for either direction,
/// so that messages both ways do not wait for one another.
void enqueue_crossing(const Meeting& meeting, const GpuGroup& group, std::span<GpuQueue> queues);

}  // namespace orrery
