// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hw_models/cluster_cost_model.hpp"

namespace orrery {

/// Ops are nodes of recorded graphs, each of which costs the host a twentieth of a call: 200 ns beside 4 us, as
/// measured for straight-line graphs on CUDA 11.8 (NVIDIA developer blog, "Constant time launch for straight-line CUDA
/// graphs", 2024).
inline void launch_by_graph(ClusterCostModel& cost) { cost.scale_parameter("launch.enqueue", 0.05); }

}  // namespace orrery
