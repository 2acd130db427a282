// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/forward_stage.hpp"
#include "sim/strategy/strategy.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {

/// Plans that do not train, on a mesh of tp (matrices, heads, the cache and the vocabulary; the logits are gathered),
/// pp (blocks), dp (samples) and ep (experts and samples).
GenerationPlans lower_generation(const Model& model, const GenerateOptions& o, const ParallelOptions& parallel,
                                 const WorkspaceModel* workspaces);

/// What an inference engine does besides.
struct InferenceEngine {
  bool packed = false;    // padding is not computed
  bool restored = false;  // but for the last norm and the logits, which ranks sum where their matrix is not the table
  PeerOptions peer = {};
  CallOptions calls = {};
};
Plan lower_inference(const Model& model, const InferOptions& o, const ParallelOptions& parallel,
                     const WorkspaceModel* workspaces, const InferenceEngine& engine = {});

}  // namespace orrery
