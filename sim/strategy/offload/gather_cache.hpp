// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/plan/builder.hpp"

namespace orrery {

/// One stay of gathered weights on the device: `shard` is gathered by op `first` of the class and used up to op `last`.
struct GatherVisit {
  std::uint32_t bucket = 0;  // its shard, by first visit
  std::uint32_t first = 0, last = 0;
  std::int64_t bytes = 0;  // gathered
};

/// Which visits find their weights still gathered, given those of a class in order. The first one of a bucket never
/// does.
using GatherPolicy = std::function<std::vector<bool>(const std::vector<GatherVisit>&)>;

/// The plan of a step with weights that are split over replicas (zero3), where later passes use what an earlier one has
/// gathered, as far as the policy lets it stay.
Plan keep_gathered(const Plan& plan, const GatherPolicy& policy, const WorkspaceModel* workspaces);

/// The first buckets stay gathered, up to this part of all bytes.
GatherPolicy keep_share(double share);
/// So many buckets, each as large as the largest, are on the device at once; who leaves is decided from all later uses
/// (Belady).
GatherPolicy keep_blocks(std::int64_t blocks);

}  // namespace orrery
