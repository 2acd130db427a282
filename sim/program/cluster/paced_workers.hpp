// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/program/cluster/cluster_run.hpp"

namespace orrery {

/// A clock of real time: a thread for each GPU, held by the job it works for until its time is over, which is `factor`
/// times the modelled one; a job's epoch is over when all of its workers say so. Times of events are those of the
/// computer's clock over the factor, so decisions see what really happened. Nothing is computed.
std::unique_ptr<ClusterClock> paced_workers(std::int64_t gpus, double factor);

}  // namespace orrery
