// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/strategy/pipeline/schedule.hpp"

namespace orrery {

/// What a schedule is made for.
struct PipelineShape {
  std::int32_t stages = 1, microbatches = 1;
  std::optional<std::int32_t> chunks;  // per stage; nothing: as the schedule has it

  bool operator==(const PipelineShape&) const = default;
};

struct ScheduleEntry {
  std::string_view name, summary;
  /// Chunks per stage when nothing is said; the only number that is legal unless `any_chunks`.
  std::int32_t chunks;
  bool any_chunks;
  /// What the schedule itself asks of a shape, with the nearest legal values; null: nothing.
  std::optional<Diagnostic> (*problem)(const PipelineShape& shape);
  Schedule (*make)(const PipelineShape& shape);  // `chunks` is set
};

/// All schedules, in the order of the literature.
std::span<const ScheduleEntry> schedules();
/// Throws UserError that names the schedules there are.
const ScheduleEntry& find_schedule(std::string_view name);

/// Why a schedule cannot be made for a shape, with the legal values as hint; nothing: it can.
std::optional<Diagnostic> problem_of(const ScheduleEntry& entry, const PipelineShape& shape);
/// The checked schedule; throws UserError when the shape is not legal.
Schedule make_schedule(const ScheduleEntry& entry, const PipelineShape& shape);
Schedule make_schedule(std::string_view name, const PipelineShape& shape);

}  // namespace orrery
