// SPDX-License-Identifier: Apache-2.0
// Any bytes as a model configuration: a model whose layers and counts hang together, or a UserError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "sim/model/load.hpp"
#include "sim/model/print.hpp"

using namespace orrery;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const Model model =
        model_from_config(parse_json(text, "config.json", {.bytes = 1u << 16, .nodes = 10'000}), "fuzz");
    const std::int64_t total = model.parameter_count(), active = model.active_parameter_count();
    if (total <= 0 || total > std::int64_t{1} << 53 || active <= 0 || active > total) std::abort();
    if (model.parameters.size() < 1000 && show_model(model).empty()) std::abort();
  } catch (const UserError& e) {
    if (e.diagnostics().empty()) std::abort();
  }
  return 0;
}
