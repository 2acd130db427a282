// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/pipeline/schedule.hpp"

namespace orrery {

Home Schedule::home(std::int32_t part, std::int32_t microbatch) const {
  switch (placement) {
    case Placement::Loop:
      return {part % stages, part / stages};
    case Placement::V:
      return part < stages ? Home{part, 0} : Home{2 * stages - 1 - part, 1};
    case Placement::Bidirectional:
      break;
  }
  return microbatch % 2 == 0 ? Home{part, 0} : Home{stages - 1 - part, 1};
}

std::vector<Home> Schedule::copies(std::int32_t part) const {
  if (placement == Placement::Bidirectional) return {home(part, 0), home(part, 1)};
  return {home(part, 0)};
}

std::int32_t Schedule::part(std::int32_t stage, std::int32_t chunk) const {
  switch (placement) {
    case Placement::Loop:
      return chunk * stages + stage;
    case Placement::V:
      return chunk == 0 ? stage : 2 * stages - 1 - stage;
    case Placement::Bidirectional:
      break;
  }
  return chunk == 0 ? stage : stages - 1 - stage;
}

std::size_t Schedule::together(std::int32_t stage, std::size_t index) const {
  const std::vector<Action>& list = actions[static_cast<std::size_t>(stage)];
  return pairs && index + 1 < list.size() && list[index].pass == Pass::Forward && list[index + 1].pass == Pass::Backward
             ? 2
             : 1;
}

Schedule empty_schedule(Placement placement, std::int32_t stages, std::int32_t chunks, std::int32_t microbatches) {
  Schedule s;
  s.placement = placement;
  s.stages = stages;
  s.chunks = chunks;
  s.parts = placement == Placement::Bidirectional ? stages : stages * chunks;
  s.microbatches = microbatches;
  s.actions.resize(static_cast<std::size_t>(stages));
  return s;
}

std::string_view pass_name(Pass pass) {
  constexpr std::string_view names[] = {"forward", "backward", "input gradient", "weight gradient"};
  return names[static_cast<int>(pass)];
}

}  // namespace orrery
