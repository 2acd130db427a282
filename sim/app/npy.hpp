// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orrery {

/// An array as a NumPy file of version 1.0: little-endian float64, or float32 when `narrow`.
enum class NpyWidth { F32, F64 };
std::string npy_bytes(std::span<const double> values, const std::vector<std::int64_t>& shape, NpyWidth width);

}  // namespace orrery
