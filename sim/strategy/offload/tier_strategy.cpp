// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/tier_strategy.hpp"

#include <fmt/format.h>

#include "sim/base/option_error.hpp"
#include "sim/strategy/distribution.hpp"
#include "sim/strategy/single_device_checks.hpp"

namespace orrery {

Plan TierStrategy::train_step(const Model& model, const TrainOptions& o, const WorkspaceModel* workspaces) const {
  check_train(model, o);
  check(o);
  if (o.optimizer.widen_gradients)
    throw OptionError{{"widen_gradients"},
                      fmt::format("the strategy `{}` takes gradients to their update as they are", name_),
                      "leave out widen_gradients"};
  return move_tensors(lower_train_step(model, o, parallel_, nullptr), o, workspaces);
}

void TierStrategy::refuse(std::string_view what) const {
  throw UserError{fmt::format("the strategy `{}` trains; it does not {}", name_, what), "use `single` or `tensor`"};
}

GenerationPlans TierStrategy::generation(const Model&, const GenerateOptions&, const WorkspaceModel*) const {
  refuse("generate");
}

Plan TierStrategy::serving_step(const Model&, const ServingStepOptions&, const WorkspaceModel*) const {
  refuse("serve");
}

Plan TierStrategy::serving_swap(const Model&, const ServingStepOptions&, const ServingSwapOptions&,
                                const WorkspaceModel*) const {
  refuse("serve");
}

Plan TierStrategy::inference(const Model&, const InferOptions&, const WorkspaceModel*) const { refuse("infer"); }

Mesh TierStrategy::mesh() const { return parse_mesh(parallel_.mesh); }

std::optional<Schedule> TierStrategy::schedule(const TrainOptions& o) const {
  const Roles roles = roles_of(mesh());
  if (!roles.pp) return {};
  return schedule_of(parallel_, roles.pp.ranks, o.microbatches);
}

}  // namespace orrery
