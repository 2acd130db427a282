// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "runtime/cuda/driver.hpp"
#include "sim/plan/plan.hpp"

namespace orrery {

/// The bit of a type and head sizes that kernels/cuda/attention_hopper.hpp has a kernel for; 0 where there is none.
std::uint32_t quick_attention_bit(DType dtype, std::int64_t qk_dim, std::int64_t v_dim);

/// The bits of all attention of a plan.
std::uint32_t quick_attention_of(const Plan& plan);

/// Which of the kernels of `wanted` may be used: those that all devices can run (compute capability 9.0) and that
/// agree, on a small problem with random numbers, with the kernel of attention_tile.hpp. A kernel is tried once per
/// driver, which keeps a line for each that fails; `warn`, if there is any, is told it as well. The devices are waited
/// for.
std::uint32_t try_quick_attention(GpuDriver& driver, std::uint32_t wanted,
                                  const std::function<void(std::string_view)>& warn);

}  // namespace orrery
