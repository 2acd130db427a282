// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/cuda/driver.hpp"
#include "runtime/rendezvous.hpp"
#include "sim/plan/plan.hpp"

namespace orrery {

/// Throws UserError for meetings with other processes that a library cannot do: barriers, messages that are not
/// contiguous, and with `graphs` rows whose number depends on data, which the host has to know.
void check_crossings(std::span<const std::unique_ptr<Meeting>> meetings, const Plan& plan, bool graphs);

/// Enqueues what the members of this process do, each on the stream of its queue (in the order of the group's seats). A
/// message is a broadcast from its sender to its receiver; each pair of ranks has a communicator for either direction,
/// so that messages both ways do not wait for one another.
///
/// Rows whose number depends on data: the members tell one another how many come, the host waits until it has read
/// that, and then asks for messages of these sizes. Throws DeviceError when a member awaits others than are sent, or
/// rows do not lie in the tensors.
void enqueue_crossing(const Meeting& meeting, const GpuGroup& group, std::span<GpuQueue> queues, const Plan& plan);

}  // namespace orrery
