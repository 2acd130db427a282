// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/plan/builder.hpp"
#include "sim/strategy/remat.hpp"

namespace orrery {

/// Whether passes make an owner anew: an activation, or what ranks send each other of one.
inline bool is_made_in_passes(const Plan& plan, TensorId owner) {
  const Tensor& t = plan.tensors[owner.index()];
  return !t.persistent && (t.role == TensorRole::Activation || t.role == TensorRole::Communication);
}

/// A run of ops of one pass of a microbatch that is made again as a whole.
struct RematNode {
  std::vector<OpId> ops;
  std::vector<TensorId> values;  // owners that it makes and later nodes use
};

/// The passes of one microbatch on a class as a graph. Forward passes over a block are two nodes: what ends with the
/// last activation that its backward pass reads, and what makes its output from there; backward passes are one. Runs of
/// blocks are taken together where there are more than `most_blocks` of them. Costs are FLOP, in 1/100 of those of the
/// forward pass; bytes are those of activations. Left out: gradients of weights, gathered weights, and what other
/// microbatches leave.
struct RematPass {
  std::vector<RematNode> nodes;
  RematGraph graph;
};
std::vector<RematPass> remat_passes(const Plan& plan, ClassId c, int most_blocks);

/// A plan without recomputation again, with what schedules of `solver` make again under a budget of bytes for each pass
/// of a microbatch: right before the first op of a stage. Throws UserError where a pass does not fit. Weights that were
/// gathered for a forward pass stay while it may be made again.
Plan make_again(const Plan& plan, const RematSolver& solver, Bytes budget, const WorkspaceModel* workspaces);

}  // namespace orrery
