// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "calibrate/gpu_benches.hpp"

namespace orrery {

/// What part of a device's measured speed the kernels of one kind reach.
struct KernelShare {
  std::string kind;   // "norm bf16"
  double share = 0;   // median over its points
  double wanted = 0;  // that it should reach
  std::size_t points = 0;

  bool is_enough() const { return share >= wanted; }
};

/// Of kernels that memory limits, over 64 MiB and more: their traffic over that of the fastest copy within the device
/// (85 % are wanted). Of attention over 8192 tokens and more: its rate over that of the fastest product of the same
/// type (60 %). Kinds without a point of that size, or without a speed to compare with, are left out.
std::vector<KernelShare> kernel_shares(const std::vector<GpuResult>& results);

/// A line each.
std::string text_of(const std::vector<KernelShare>& shares);

}  // namespace orrery
