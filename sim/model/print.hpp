// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/model/model.hpp"

namespace orrery {

/// What a model is, for people: family, counts, memory of the weights, and a table of its layers with shapes and
/// numbers of parameters. Parameters whose names differ in numbers only, as those of blocks and experts do, share a
/// line.
std::string show_model(const Model& model);

/// One line per parameter: name, shape, number of elements.
std::string list_parameters(const Model& model);

/// A count with three significant digits: "124 M", "6.74 B", "1.01 T".
std::string count_text(std::int64_t count);

}  // namespace orrery
