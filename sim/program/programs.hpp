// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery {

/// One template, repeated: `steps` training steps. Told "loss" and "grad_norm2".
std::unique_ptr<Program> training_program(const Model& model, const TrainOptions& options, Plan plan,
                                          std::vector<std::int32_t> text);

/// Prefill, then decode steps whose context grows by one and whose token is what the step before gave. Told
/// "next_tokens".
std::unique_ptr<Program> generation_program(const Model& model, const GenerateOptions& options, GenerationPlans plans,
                                            std::vector<std::int32_t> prompt);

/// `steps` forward passes, each on new inputs. Told "logits".
std::unique_ptr<Program> inference_program(const Model& model, const InferOptions& options, Plan plan);

}  // namespace orrery
