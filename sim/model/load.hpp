// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/yaml.hpp"
#include "sim/model/model.hpp"

namespace orrery {

/// Reads a Hugging Face `config.json` (any file name), or the one in a folder. Both the spellings of transformers v4
/// (`rope_theta`, `rope_scaling`, `torch_dtype`) and v5 (`rope_parameters`, `dtype`) are read; of a multimodal
/// configuration the `text_config`. Absent keys take the family's own defaults, keys without meaning for shapes are
/// ignored. Weights are not read, and of `quantization_config` nothing is. Throws UserError with every problem of the
/// file.
Model load_model(const std::string& path);
/// The configuration that a path leads to: the one in a folder, else the file itself.
std::string config_file(const std::string& path);

/// The same from a document that is already read.
Model model_from_config(const Node& config, std::string_view name);

/// One supported `model_type`, for lists and documentation.
struct ModelFamily {
  std::string_view name;
  std::string_view summary;
};
std::vector<ModelFamily> model_families();

}  // namespace orrery
