// SPDX-License-Identifier: Apache-2.0
// Rows of a table, each a way to split a training step, against the same step on one device.
#pragma once

#include "tests/parallel_testing.hpp"

namespace orrery::testing {

struct Composition {
  const char* model;
  const char* strategy;
  const char* options = "{}";
};

/// By default 8 samples of 8 tokens, AdamW with weight decay and a norm that is clipped, two steps.
inline TrainOptions options_of(const Composition& c, Precision dtype, std::int64_t microbatches) {
  TrainOptions o;
  o.batch = 8;
  o.microbatches = microbatches;
  o.sequence = 8;
  o.steps = 2;
  o.optimizer = clipped_optimizer();
  read_options(parse_yaml(c.options, "options"), o);
  o.dtype = dtype;
  return o;
}

/// What one device computes, with a fused loss; equal for the compositions of one model and workload.
class References {
 public:
  const Trained& of(const Composition& c, const TrainOptions& o) {
    Trained& entry = known_[std::string{c.model} + c.options + (o.dtype == Precision::F64 ? "64" : "32")];
    TrainOptions plain = o;
    plain.loss = LossKind::Fused;
    plain.waits_for_loss = plain.waits_for_experts = plain.copied_values = false;
    if (entry.losses.empty()) entry = train(named_model(c.model), plain, *single());
    return entry;
  }

 private:
  std::map<std::string, Trained> known_;
};

}  // namespace orrery::testing
