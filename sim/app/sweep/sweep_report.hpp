// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "sim/app/console.hpp"
#include "sim/app/sweep/sweep_store.hpp"

namespace orrery {

/// The last words of keys, as many as tell them apart.
std::vector<std::string> short_names(const std::vector<std::string>& keys);
bool has_several_scenarios(const SweepResults& sweep);

/// A value of a result by its name, or the first value of a group of that name that says how much it is.
std::optional<double> metric_in(const nlohmann::json& result, const std::string& name);
/// Such a value for people.
std::string metric_text(std::string_view name, double value);

/// Whether what a point needs of each memory is there.
bool fits(const nlohmann::json& result);
/// The point with the most tokens (of serving: output tokens; of cached training: samples) per second of those that
/// fit; the first of equals.
std::optional<std::size_t> best_point(const SweepResults& sweep);

/// The points that fit and that no other one which fits beats in one of these metrics without losing in another, in
/// order. A metric is a value of results, such as `tokens_per_second` or `peak_memory`; rates and shares of use are to
/// be high, all else low. Points without a metric are left out.
std::vector<std::size_t> pareto_front(const SweepResults& sweep, const std::vector<std::string>& metrics);

/// A row for each point, the best one marked, those without a result told below.
/// `front`: points that are marked as well.
std::string to_text(const SweepResults& sweep, const Console& console, const std::vector<std::size_t>& front = {});
nlohmann::json to_json(const SweepResults& sweep);
/// One point.
nlohmann::json to_json(const SweepResults& sweep, std::size_t point);

}  // namespace orrery
