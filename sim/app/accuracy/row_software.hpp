// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string_view>

#include "sim/app/accuracy/published_step.hpp"

namespace orrery {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Software by a part of its name: its profile, and what it did when nothing else is said.
struct Software {
  std::string_view words;  // in small letters
  std::string_view profile;
  DataKind data = DataKind::Ddp;
  bool stored_scores = false;      // no fused attention yet
  bool overlap = true;             // of the sums of gradients with the passes
  bool owners = false;             // of stretches of weights, who broadcast them
  bool wide_gradients = true;      // f32
  bool blocking = false;           // pipelines that synchronize with the device around each exchange
  bool sequence_parallel = false;  // with tp
  double tensor_overlap = kNever;  // asynchronous all-reduce of tp from this year on
  bool tp_comm_overlap = false;    // with sequence_parallel, where multiplies_in_pieces says so
  LossKind loss = LossKind::Megatron;
  bool waits_for_loss = false;  // asserts that it is a number
  double dropout = 0;           // of stored scores, too, with masks
  double cached_per_state = 0;  // see PublishedStep
};
/// What the row names. Software that is not known here has no profile and does what PyTorch does of itself: sums of
/// gradients beside the passes, a loss op by op, and stored scores before PyTorch had fused attention, in 2023, where
/// it does not say that it has.
Software software_of(const CsvRow& row);

}  // namespace orrery
