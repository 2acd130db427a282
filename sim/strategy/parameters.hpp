// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/model/model.hpp"
#include "sim/plan/builder.hpp"
#include "sim/strategy/tape.hpp"
#include "sim/strategy/workload.hpp"

namespace orrery {

/// Storage of a model's parameters in a plan. The experts of a block lie in one tensor [experts, out, in] per matrix,
/// so that one grouped GEMM serves them; each expert's parameter is a view of it.
class ParameterStorage {
 public:
  ParameterStorage(PlanBuilder& builder, const Model& model, DType dtype);

  TensorId operator[](ParameterId id) const { return weights_[id.index()]; }
  /// All experts of a matrix, given the first expert's parameter.
  TensorId stack(ParameterId first_expert) const { return builder_->plan().owner(weights_[first_expert.index()]); }

  /// Makes storage for gradients and tells the tape.
  void add_gradients(Tape& tape);
  /// Emits the update of every parameter: the global norm if it is clipped, then one op per tensor. Adds the optimizer
  /// states. Parameters that no gradient reached (selection biases, unused embeddings) stay as they are.
  void update(const Tape& tape, const OptimizerOptions& options);

 private:
  void stack_experts(const MoE& moe);
  void stack(const std::vector<ParameterId>& experts);
  /// Emits the squared norm of all gradients together.
  TensorId sum_norm(const Tape& tape);
  void update_one(std::size_t owner, TensorId norm2, const OptimizerOptions& options);

  PlanBuilder* builder_;
  const Model* model_;
  DType dtype_;
  std::vector<TensorId> weights_;
  std::vector<TensorId> owners_;     // storage, in order of the parameters
  std::vector<TensorId> gradients_;  // of the owners
  std::vector<bool> decay_;          // of the owners
};

}  // namespace orrery
