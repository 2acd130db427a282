// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/tier_strategy.hpp"

#include <fmt/format.h>

#include "sim/base/option_error.hpp"
#include "sim/strategy/single_device_checks.hpp"

namespace orrery {

Plan TierStrategy::train_step(const Model& model, const TrainOptions& o, const WorkspaceModel* workspaces) const {
  check_train(model, o);
  check(o);
  if (o.optimizer.widen_gradients)
    throw OptionError{{"widen_gradients"},
                      fmt::format("the strategy `{}` takes gradients to their update as they are", name()),
                      "leave out widen_gradients"};
  return move_tensors(lower_train_step(model, o, parallel(), nullptr), o, workspaces);
}

}  // namespace orrery
