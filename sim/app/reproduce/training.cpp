// SPDX-License-Identifier: Apache-2.0
#include "sim/app/reproduce/training.hpp"

#include <fmt/format.h>

#include "sim/base/error.hpp"

namespace orrery {

std::string GptSize::model() const {
  return fmt::format("{{model_type: gpt2, n_embd: {}, n_layer: {}, n_head: {}, n_positions: 1024, vocab_size: 50257}}",
                     hidden, layers, heads);
}

std::optional<Report> fitting_step(const Reproducer& r, const std::string& scenario,
                                   const std::vector<std::pair<std::string, double>>& scales) {
  try {
    Report report = r.predict(scenario, scales).report;
    if (!all_fits(report)) return {};
    return report;
  } catch (const UserError&) {  // no room for what one op needs
    return {};
  }
}

double teraflops_of(double parameters, double tokens, double seconds) {
  return 8 * parameters * tokens / seconds * 1e-12;
}

}  // namespace orrery
