// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/pipeline/schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "sim/base/option_error.hpp"
#include "sim/strategy/pipeline/check.hpp"
#include "sim/strategy/pipeline/makers.hpp"

namespace orrery {
namespace {

constexpr ScheduleEntry kSchedules[] = {
    {"gpipe", "all forwards, then all backwards", 1, false, nullptr, make_gpipe},
    {"1f1b", "one forward, one backward: as few activations as stages", 1, false, nullptr, make_one_f_one_b},
    {"interleaved", "1f1b over several chunks per stage: a smaller bubble, more hops", 2, true, problem_of_interleaved,
     make_interleaved},
    {"chimera", "two pipelines in opposite directions, every part twice", 2, false, problem_of_chimera, make_chimera},
    {"zb-h1", "1f1b whose weight gradients wait to fill the bubble", 1, false, nullptr, make_zb_h1},
    {"zb-v", "two chunks per stage in a V and waiting weight gradients: no bubble between first and last action", 2,
     false, nullptr, make_zb_v},
    {"dualpipe", "two directions, every part twice, forwards overlapped with backwards", 2, false, problem_of_dualpipe,
     make_dualpipe},
};

std::optional<Diagnostic> problem(std::string message, std::string hint) {
  return Diagnostic{std::move(message), std::move(hint), {}, 0, 0, {}};
}

/// What is beyond these is a slip of the pen: 4,096 stages of 8 chunks with 300 microbatches are below.
constexpr std::int32_t kMaxStages = 4096;
constexpr double kMaxPasses = 1e7;

PipelineShape with_chunks(const ScheduleEntry& entry, PipelineShape shape) {
  shape.chunks = shape.chunks.value_or(entry.chunks);
  return shape;
}

}  // namespace

std::span<const ScheduleEntry> schedules() { return kSchedules; }

const ScheduleEntry& find_schedule(std::string_view name) {
  const auto* it = std::find_if(std::begin(kSchedules), std::end(kSchedules),
                                [&](const ScheduleEntry& e) { return e.name == name; });
  if (it != std::end(kSchedules)) return *it;
  std::vector<std::string> known;
  for (const ScheduleEntry& e : kSchedules) known.emplace_back(e.name);
  throw OptionError{{"schedule"}, unknown_name("schedule", name, known)};
}

std::optional<Diagnostic> need_even_stages(std::string_view name, const PipelineShape& shape) {
  if (shape.stages % 2 == 0) return {};
  return problem(
      fmt::format("{} needs an even number of stages, not {}", name, shape.stages),
      shape.stages == 1 ? "2 or 4 are legal" : fmt::format("{} or {} are legal", shape.stages - 1, shape.stages + 1));
}

std::optional<Diagnostic> problem_of(const ScheduleEntry& entry, const PipelineShape& shape) {
  if (shape.stages < 1 || shape.stages > kMaxStages)
    return problem(fmt::format("{} needs 1 to {} stages, not {}", entry.name, kMaxStages, shape.stages), "");
  if (shape.microbatches < 1)
    return problem(fmt::format("{} needs at least 1 microbatch, not {}", entry.name, shape.microbatches), "");
  if (!entry.any_chunks && shape.chunks.value_or(entry.chunks) != entry.chunks)
    return problem(fmt::format("{} has {} chunk{} per stage, not {}", entry.name, entry.chunks,
                               entry.chunks == 1 ? "" : "s", *shape.chunks),
                   "only interleaved takes another number");
  const PipelineShape filled = with_chunks(entry, shape);
  if (const double passes = 1.0 * shape.stages * shape.microbatches * *filled.chunks; passes > kMaxPasses)
    return problem(fmt::format("{} of {} stages, {} microbatches and {} chunks has {:.3g} forwards", entry.name,
                               shape.stages, shape.microbatches, *filled.chunks, passes),
                   fmt::format("at most {:.0g} are legal", kMaxPasses));
  return entry.problem == nullptr ? std::nullopt : entry.problem(filled);
}

Schedule make_schedule(const ScheduleEntry& entry, const PipelineShape& shape) {
  if (auto found = problem_of(entry, shape)) throw OptionError{{"schedule"}, UserError{std::move(*found)}};
  Schedule schedule = entry.make(with_chunks(entry, shape));
  schedule.name = entry.name;
  if (const auto problems = check(schedule); !problems.empty())
    bug(fmt::format("{} of {} stages and {} microbatches: {}", entry.name, shape.stages, shape.microbatches,
                    problems.front()));
  return schedule;
}

Schedule make_schedule(std::string_view name, const PipelineShape& shape) {
  return make_schedule(find_schedule(name), shape);
}

}  // namespace orrery
