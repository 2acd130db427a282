// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "sim/base/yaml.hpp"

namespace orrery {

/// Sizes that GPT-2 and Llama share, as calibrations draw them.
struct DrawnModel {
  bool llama = false;
  std::int64_t hidden = 256, heads = 4, kv_heads = 4, ffn = 1024, layers = 1, vocab = 1024;

  /// Of the MLP: Llama's is a third narrower than four times the hidden size, in whole 64.
  std::int64_t usual_ffn() const { return llama ? (hidden * 8 / 3 + 63) / 64 * 64 : 4 * hidden; }
};
/// Its `config.json`.
Node config_of(const DrawnModel& model, std::int64_t positions);

/// A document of scalars.
Node map_of(std::initializer_list<std::pair<const char*, std::string>> fields);

}  // namespace orrery
