// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <utility>

#include "sim/strategy/strategy.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {

/// A strategy that lowers training steps on a mesh, and refuses all else.
class TrainingStrategy : public Strategy {
 public:
  TrainingStrategy(std::string_view name, ParallelOptions parallel) : name_{name}, parallel_{std::move(parallel)} {}

  GenerationPlans generation(const Model&, const GenerateOptions&, const WorkspaceModel*) const final;
  Plan serving_step(const Model&, const ServingStepOptions&, const WorkspaceModel*) const final;
  Plan serving_swap(const Model&, const ServingStepOptions&, const ServingSwapOptions&,
                    const WorkspaceModel*) const final;
  Plan inference(const Model&, const InferOptions&, const WorkspaceModel*) const final;
  Mesh mesh() const final;
  std::optional<Schedule> schedule(const TrainOptions& options) const final;

 protected:
  const ParallelOptions& parallel() const { return parallel_; }
  std::string_view name() const { return name_; }

 private:
  [[noreturn]] void refuse(std::string_view what) const;

  std::string_view name_;
  ParallelOptions parallel_;
};

}  // namespace orrery
