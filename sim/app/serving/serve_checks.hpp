// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/app/scenario.hpp"
#include "sim/app/serving/step_times.hpp"

namespace orrery {

/// Throws UserError, at its key, for a pool of `kv_tokens` that is no block or that the device has no room for beside
/// weights, activations and `reserved`, and for more memory of the host to `swap` than a device's share of it.
void check_pool(const Scenario& scenario, const ReplicaOptions& options, const ReplicaMemory& memory);

/// Keys of `workload.serve` that the scenario gives and that other keys leave without meaning, each with why:
/// "traffic.cv: arrivals are poisson".
std::vector<std::string> unread_keys(const Scenario& scenario, const ServeOptions& options);

}  // namespace orrery
