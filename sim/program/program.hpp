// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/plan/plan.hpp"

namespace orrery {

/// Contents of an input port, row-major over all microbatches.
struct PortValues {
  std::string port;
  std::vector<std::int32_t> indices;  // for index tensors
  std::vector<double> numbers;        // for others
};

/// The next piece of work: a template under bindings, what goes in, and what the program wants to be told afterwards.
struct Step {
  std::uint32_t plan = 0;  // into Program::plans
  Bindings bindings;
  std::vector<PortValues> inputs;
  std::vector<std::string> outputs;  // ports
};

/// What came out of a step: the runtime's real values, a recorded run's, or drawn from a seeded distribution.
struct Outcome {
  std::map<std::string, std::vector<double>> values;
  double seconds = 0;  // that the step took, by the clock of whoever executed it
};

/// A plan that brings weights to where plans place them from where they are newer, and its inputs.
struct WriteBack {
  Plan plan;
  Step step;
};

/// Emits work step by step from what happened before. The simulator and the runtime drive the same program.
class Program {
 public:
  virtual ~Program() = default;
  /// The templates, lowered once. They live as long as the program.
  virtual std::span<const Plan> plans() const = 0;
  /// The next step; nothing when the program is done.
  virtual std::optional<Step> next() = 0;
  /// From here on steps come without what a simulator has no use for: samples and targets.
  virtual void leave_out_samples() {}
  /// What the step that `next` gave last came to.
  virtual void told(const Outcome& outcome) = 0;
  /// Ahead of reading weights, behind the last step; nothing where they are in their place.
  virtual std::optional<WriteBack> write_back() const { return std::nullopt; }
};

/// Where outcomes come from when nothing is executed.
class OutcomeSource {
 public:
  virtual ~OutcomeSource() = default;
  virtual Outcome outcome(const Plan& plan, const Step& step) = 0;
};

/// Token ports: uniform over the vocabulary; others: zeros.
std::unique_ptr<OutcomeSource> seeded_outcomes(std::uint64_t seed);
/// The outcomes of a run, in order; repeats the last one when they run out.
std::unique_ptr<OutcomeSource> recorded_outcomes(std::vector<Outcome> outcomes);

}  // namespace orrery
