// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hw_models/device_model.hpp"
#include "sim/plan/plan.hpp"
#include "sim/program/serving/serving_options.hpp"

namespace orrery {

/// Types of the matrices of blocks in memory. Those of experts alone in 4 bits (MXFP4) meet rows in 8 bits (MXFP8) on
/// devices that multiply 4 bits faster than 16, and are widened for rows in 16 bits on others; other matrices are
/// multiplied as they are.
struct WeightTypes {
  DType dense, experts;
  bool rows_of_experts_in_8_bits = false;
  bool apart() const { return dense != experts; }
};
/// Throws UserError for an unknown name of `ServeOptions::weights`.
WeightTypes weight_types(const ServeOptions& options, const DeviceModel& device);

/// The type of keys and values in the pool.
DType kv_dtype(const ServeOptions& options);

/// Products of blocks in the type of their weights, and attention with the type of the pool: what such a plan costs.
/// Nobody executes it: its operands keep the type of the activations.
void narrow(Plan& plan, const WeightTypes& weights, DType pool);

}  // namespace orrery
