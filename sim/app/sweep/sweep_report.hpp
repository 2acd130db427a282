// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "sim/app/console.hpp"
#include "sim/app/sweep/sweep_store.hpp"

namespace orrery {

/// Whether what a point needs of each memory is there.
bool fits(const nlohmann::json& result);
/// The point with the most tokens (of serving: output tokens; of cached training: samples) per second of those that
/// fit; the first of equals.
std::optional<std::size_t> best_point(const SweepResults& sweep);

/// A row for each point, the best one marked, those without a result told below.
std::string to_text(const SweepResults& sweep, const Console& console);
nlohmann::json to_json(const SweepResults& sweep);
/// One point.
nlohmann::json to_json(const SweepResults& sweep, std::size_t point);

}  // namespace orrery
