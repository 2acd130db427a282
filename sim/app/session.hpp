// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/scenario.hpp"
#include "sim/app/wiring.hpp"
#include "sim/model/tokenizer.hpp"
#include "sim/program/program.hpp"
#include "sim/timeline/digest.hpp"

namespace orrery {

/// The scenario's tokenizer, or bytes.
std::unique_ptr<Tokenizer> tokenizer_of(const Scenario& scenario);

/// Lowers a scenario's plans and makes the program that emits them. `steps` replaces the number of training steps or
/// passes. `device` is what the kernels run on: null for none of ours. The scenario must outlive the program.
struct ProgramRequest {
  const WorkspaceModel* workspaces = nullptr;
  std::optional<std::int64_t> steps;
  std::optional<std::vector<std::int32_t>> tokens;  // instead of the scenario's text, prompt, or random tokens
  bool fused = false;  // a generation with the kernels of an engine (kernel_fusion.hpp): its times alone are asked
};
std::unique_ptr<Program> make_program(const Scenario& scenario, const Wiring& wiring, const ProgramRequest& request);

/// What came of driving a program.
struct Recording {
  Timeline timeline;
  std::vector<Step> steps;        // one per instance of the timeline
  std::vector<Outcome> outcomes;  // likewise
};

/// Executes steps of one program: the engine or the runtime.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// The engine notes in the step's bindings what came before it.
  virtual Outcome run(const Plan& plan, Step& step) = 0;
  virtual Timeline take() = 0;
  /// What ranks have asked of the memory of their devices; empty where that was not to be logged.
  virtual std::map<RankId, AllocationTrace> take_allocations() { return {}; }
};

/// Where outcomes of a scenario come from when nothing is executed.
std::unique_ptr<OutcomeSource> outcomes_of(const Scenario& scenario, const Wiring& wiring);

/// The engine, as the scenario wants it, with outcomes from a source. Arguments outlive it.
std::unique_ptr<StepRunner> simulated(const Machine& machine, const Wiring& wiring, const Program& program,
                                      const Scenario& scenario, Logged logged = Logged::Nothing);

/// The runtime: weights and constants are written when it is made. Where the scenario asks for it, what a speculation
/// is told is drawn, not what was computed.
std::unique_ptr<StepRunner> executed(const Scenario& scenario, const Program& program, Executor& executor,
                                     const Wiring& wiring);

/// Called before each step with its number; may throw to stop.
using StepCallback = std::function<void(std::size_t)>;

/// Drives a program to its end, or for so many steps.
Recording drive(Program& program, StepRunner& runner, const StepCallback& before_step, std::size_t most = SIZE_MAX);
/// Repeats steps that were recorded: the same work again.
Recording replay(const Program& program, const std::vector<Step>& steps, StepRunner& runner,
                 const StepCallback& before_step);

/// The plans of a program as a list of pointers, and as digests.
std::vector<const Plan*> plans_of(const Program& program);
PlanDigests digests_of(const Program& program);

/// What one simulation of a scenario gives.
struct Simulation {
  std::unique_ptr<Program> program;
  Recording recording;
  double wall_seconds = 0;
  std::map<RankId, AllocationTrace> allocations = {};  // where asked for
};
/// What a simulation of a program whose plans are known is to keep; null: spans and peaks alone.
using LoggedOf = std::function<Logged(const Program& program)>;
inline LoggedOf always(Logged logged) {
  return [logged](const Program&) { return logged; };
}

/// `steps` and `fused` as in ProgramRequest. Steps of training and inference repeat exactly: more than a few tell
/// nothing new, and of a large plan one is enough.
Simulation simulate_scenario(const Scenario& scenario, const Machine& machine, const Wiring& wiring,
                             std::optional<std::int64_t> steps, const StepCallback& before_step,
                             const LoggedOf& logged = {}, bool fused = false);

}  // namespace orrery
