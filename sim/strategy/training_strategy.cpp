// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/training_strategy.hpp"

#include <fmt/format.h>

#include "sim/base/error.hpp"
#include "sim/strategy/distribution.hpp"

namespace orrery {

void TrainingStrategy::refuse(std::string_view what) const {
  throw UserError{fmt::format("the strategy `{}` trains; it does not {}", name_, what), "use `single` or `tensor`"};
}

GenerationPlans TrainingStrategy::generation(const Model&, const GenerateOptions&, const WorkspaceModel*) const {
  refuse("generate");
}

Plan TrainingStrategy::serving_step(const Model&, const ServingStepOptions&, const WorkspaceModel*) const {
  refuse("serve");
}

Plan TrainingStrategy::serving_swap(const Model&, const ServingStepOptions&, const ServingSwapOptions&,
                                    const WorkspaceModel*) const {
  refuse("serve");
}

Plan TrainingStrategy::inference(const Model&, const InferOptions&, const WorkspaceModel*) const { refuse("infer"); }

Mesh TrainingStrategy::mesh() const { return parse_mesh(parallel_.mesh); }

std::optional<Schedule> TrainingStrategy::schedule(const TrainOptions& o) const {
  const Roles roles = roles_of(mesh());
  if (!roles.pp) return {};
  return schedule_of(parallel_, roles.pp.ranks, o.microbatches);
}

}  // namespace orrery
