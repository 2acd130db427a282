// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "sim/model/config_reader.hpp"
#include "sim/model/model.hpp"

namespace orrery {

/// What a configuration says about rotary positions.
struct RopeReading {
  Rope rope;
  double score_factor = 1.0;  // DeepSeek's yarn: mscale², an extra factor on the scores
};

/// What `read_rope` must know besides the configuration.
struct RopeNeeds {
  std::int64_t head_dim = 0;  // times partial_rotary_factor: the dimensions that turn
  double theta = 10000;       // the family's default
  std::int64_t max_positions = 0;
  std::string_view layer_type = "full_attention";  // transformers v5 may give each its own parameters
  std::string_view theta_key = "rope_theta";       // another: the layer type's own, to which no scaling applies (v4)
};

/// Inverse frequencies of rotary embeddings, with their scaling applied:
///
///   default, dynamic   f_i = theta^(-2i/d)                      (dynamic changes only what lies beyond the trained
///   length) linear             f_i / factor llama3             long waves / factor, short ones as they are, a linear
///   blend in wavelength between yarn               blend of f_i / factor and f_i over the dimensions between beta_slow
///   and beta_fast turns
///
/// Reads `rope_parameters` (transformers v5) or `rope_theta` and `rope_scaling` (v4). Formulas as in transformers'
/// modeling_rope_utils. Left out: longrope, and frequencies that change with the length of the input.
RopeReading read_rope(ConfigReader& config, const RopeNeeds& needs);

}  // namespace orrery
