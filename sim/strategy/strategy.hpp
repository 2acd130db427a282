// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/model/model.hpp"
#include "sim/plan/builder.hpp"
#include "sim/strategy/pipeline/schedule.hpp"
#include "sim/strategy/workload.hpp"

namespace orrery {

/// The plans of a generation: one prefill, and one decode step whose context is bound. Where prompts are read in pieces
/// `chunk` is one of them but the last, which is the prefill.
struct GenerationPlans {
  Plan prefill, decode;
  std::optional<Plan> chunk = {};
};

/// A rule that lowers a model and a workload to plans. It never asks how long anything takes.
class Strategy {
 public:
  virtual ~Strategy() = default;
  /// One training step: forward and backward per microbatch, clipping, update. Ports: the inputs, "targets", "loss",
  /// "grad_norm2".
  virtual Plan train_step(const Model& model, const TrainOptions& options, const WorkspaceModel* workspaces) const = 0;
  /// Ports: the inputs, "logits", "next_tokens".
  virtual GenerationPlans generation(const Model& model, const GenerateOptions& options,
                                     const WorkspaceModel* workspaces) const = 0;
  /// One step of a server. Ports: "tokens", "positions", "slots", "pages", "starts", "lengths", "last", "logits",
  /// "next_tokens"; see PagedAttention, whose symbols are bound. Rows without a sequence have slot −1.
  virtual Plan serving_step(const Model& model, const ServingStepOptions& options,
                            const WorkspaceModel* workspaces) const = 0;
  /// Copies between the pool of its steps and the host. Ports: "from", "to": slots, −1 for none.
  virtual Plan serving_swap(const Model& model, const ServingStepOptions& options, const ServingSwapOptions& swap,
                            const WorkspaceModel* workspaces) const = 0;
  /// One forward pass. Ports: the inputs, "logits".
  virtual Plan inference(const Model& model, const InferOptions& options, const WorkspaceModel* workspaces) const = 0;
  /// The ranks of its training steps; one without axes.
  virtual Mesh mesh() const { return {}; }
  /// Whether training steps do equal work: a few of them tell as much as many.
  virtual bool steps_repeat() const { return true; }
  /// What the stages of a training step do, in order; nothing without a pipeline.
  virtual std::optional<Schedule> schedule(const TrainOptions&) const { return {}; }
};

struct StrategyEntry {
  std::string_view name, summary;
  std::unique_ptr<Strategy> (*make)(const Node& options);
  std::vector<OptionInfo> (*options)();
};

/// All strategies, in the order of `orrery list strategies`.
std::span<const StrategyEntry> strategies();
/// Throws UserError that names the strategies there are.
const StrategyEntry& find_strategy(std::string_view name);

}  // namespace orrery
