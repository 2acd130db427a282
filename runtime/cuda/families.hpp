// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "runtime/op_call.hpp"
#include "sim/plan/work.hpp"

namespace orrery {

// The function that enqueues an op, from the source of its family; null when the kind is of another family or the type
// is not legal.
Kernel find_gpu_product(const Work& work);
Kernel find_gpu_attention(const Work& work);
Kernel find_gpu_rows(const Work& work);
Kernel find_gpu_elementwise(const Work& work);
Kernel find_gpu_tokens(const Work& work);
Kernel find_gpu_update(const Work& work);
Kernel find_gpu_move(const Work& work);
Kernel find_gpu_host_work(const Work& work);
Kernel find_gpu_host_update(const Work& work);
Kernel find_gpu_grouped(const Work& work);
Kernel find_gpu_routing(const Work& work);
Kernel find_gpu_speculation(const Work& work);
Kernel find_gpu_vision(const Work& work);
Kernel find_gpu_recommendation(const Work& work);
Kernel find_gpu_factor(const Work& work);

/// The first of these that there is.
Kernel find_gpu_kernel(const Work& work);

/// Variant indices of the kinds that the cuda device runs, ascending; the others are refused.
std::vector<std::size_t> gpu_kinds();

}  // namespace orrery
