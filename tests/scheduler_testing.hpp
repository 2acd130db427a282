// SPDX-License-Identifier: Apache-2.0
// Schedulers step by step.
#pragma once

#include <string>
#include <vector>

#include "sim/program/serving/scheduler.hpp"

namespace orrery::testing {

inline ReplicaOptions replica(std::string_view scheduler, std::int64_t sequences = 4, std::int64_t tokens = 32) {
  ReplicaOptions o;
  o.scheduler = scheduler;
  o.max_sequences = sequences;
  o.max_tokens = tokens;
  o.block = 4;
  return o;
}

inline Request request(std::int64_t id, std::int64_t prompt, std::int64_t output) {
  return {.id = id, .prompt = prompt, .output = output};
}

/// Rows of each part of a step, as "3d 16p": a row that decodes, rows of a prompt.
inline std::string rows_of(const StepBatch& batch) {
  std::string text;
  for (const Part& p : batch.parts) {
    if (!text.empty()) text += ' ';
    text += std::to_string(p.sequence->request.id) + ':' + std::to_string(p.rows);
  }
  return text;
}

/// The steps until all is answered.
inline std::vector<std::string> steps_of(Scheduler& s) {
  std::vector<std::string> steps;
  for (;;) {
    const StepBatch batch = s.begin();
    if (batch.is_empty()) return steps;
    steps.push_back(rows_of(batch));
    s.end(batch);
  }
}

}  // namespace orrery::testing
