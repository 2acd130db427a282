// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/app/command.hpp"
#include "sim/app/report.hpp"

namespace orrery {

/// A parameter of the hardware and how many times as fast (rates) or long (latencies) it is to be.
struct Change {
  std::string parameter;
  double factor = 1;
  std::string text;  // as typed
};
/// "link.bandwidth=x2", "memory.bandwidth=+10%". Throws UserError.
Change parse_change(const std::string& text);

/// A prediction under changes.
struct WhatIf {
  std::string text;
  double step = 0;
  std::vector<NamedSeconds> by_class;
};
/// Each change alone, and all of them together where there are several.
std::vector<WhatIf> predict_changes(const Scenario& scenario, const std::vector<Change>& changes, AppContext& context);

std::string what_if_text(const Report& base, const std::vector<WhatIf>& rows);
nlohmann::json what_if_json(const Report& base, const std::vector<WhatIf>& rows);

/// Predicts a scenario on a machine with changed parameters.
Report predict_changed(const Scenario& scenario, const std::vector<Change>& changes, AppContext& context);

}  // namespace orrery
