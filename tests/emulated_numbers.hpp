// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/cuda/driver.hpp"

namespace orrery::testing {

/// One number of a matrix of an emulated GPU, by its place in memory.
double number(const GpuProduct::Matrix& x, std::int64_t i);
void set_number(const GpuProduct::Matrix& x, std::int64_t i, double v);

}  // namespace orrery::testing
