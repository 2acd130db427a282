// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace orrery {

/// What a stage does with a microbatch of one of its chunks. Backward is input and weight gradient together; a schedule
/// that splits them does the input gradient first, since the stage before waits for it and nobody for the other.
enum class Pass : std::uint8_t { Forward, Backward, InputGradient, WeightGradient };

struct Action {
  Pass pass = Pass::Forward;
  std::int32_t chunk = 0;  // of the stage
  std::int32_t microbatch = 0;

  bool operator==(const Action&) const = default;
};

/// Where a part of the model runs.
struct Home {
  std::int32_t stage = 0, chunk = 0;

  bool operator==(const Home&) const = default;
};

/// Which parts of the model a stage holds. p stages, parts in the order of the layers:
///   Loop           chunk c of stage s is part c·p + s
///   V              two chunks: part s on the way there, part 2p − 1 − s on the way back
///   Bidirectional  two chunks, each part twice: part s of the pipeline down, which takes the even microbatches, and
///                  part p − 1 − s of the pipeline up, which takes the odd ones
enum class Placement : std::uint8_t { Loop, V, Bidirectional };

/// A pipeline schedule: what each stage does, in order. It has no times; `time_schedule` finds them.
struct Schedule {
  std::string_view name;
  Placement placement = Placement::Loop;
  std::int32_t stages = 0, chunks = 0, parts = 0, microbatches = 0;
  std::vector<std::vector<Action>> actions;  // per stage
  /// A forward and the whole backward right after it belong together: they may run overlapped (DualPipe's F&B).
  bool pairs = false;

  /// Which copy of a part serves a microbatch.
  Home home(std::int32_t part, std::int32_t microbatch) const;
  /// The part that a chunk of a stage holds.
  std::int32_t part(std::int32_t stage, std::int32_t chunk) const;
  /// All copies of a part: two in bidirectional schedules, whose gradients must be added up, otherwise one.
  std::vector<Home> copies(std::int32_t part) const;
  /// Actions from `index` on that start together: 2 for the forward of a pair, otherwise 1.
  std::size_t together(std::int32_t stage, std::size_t index) const;
};

/// A schedule without actions; its parts follow from the placement.
Schedule empty_schedule(Placement placement, std::int32_t stages, std::int32_t chunks, std::int32_t microbatches);

/// "forward", "backward", "input gradient", "weight gradient".
std::string_view pass_name(Pass pass);

}  // namespace orrery
