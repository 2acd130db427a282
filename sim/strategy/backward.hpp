// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/tape.hpp"

namespace orrery {

/// Emits the gradient ops of one recorded op: dL/d(input) from dL/d(output). Nothing is emitted when no gradient
/// arrives or none is wanted. An op kind that cannot be differentiated through (sampling, optimizers) passes nothing
/// on.
void backward(const TapeNode& node, Tape& tape);

/// The same of a product, half by half: of its input, and of its weight and bias.
void backward_of_input(const TapeNode& product, Tape& tape);
void backward_of_weight(const TapeNode& product, Tape& tape);

}  // namespace orrery
