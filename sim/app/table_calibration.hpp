// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "calibrate/published/kernels.hpp"
#include "hw_models/gpu_model.hpp"
#include "sim/app/command.hpp"

namespace orrery {

/// Laws of a device that were fitted to published tables.
struct TableCalibration {
  GpuParameters parameters;
  std::vector<std::string> fitted;  // names of the laws
  std::size_t rows = 0;             // of the device in all tables
  bool of_runtime = false;          // the laws are those of our own runtime on the device
};

/// Fits the laws of `device`, whose parameter file must exist, to the rows of tables of kernels that are of it.
TableCalibration calibrate_from_tables(const std::vector<std::string>& tables, const std::string& device,
                                       AppContext& context);

/// Those of a device as its file has them. Throws UserError when it is no GPU.
GpuParameters gpu_parameters(const std::string& device, const std::vector<std::string>& folders);

/// Writes the parameter file, whole or not at all.
void write_table_calibration(const TableCalibration& calibration, const std::string& path);

}  // namespace orrery
