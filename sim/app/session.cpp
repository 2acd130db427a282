// SPDX-License-Identifier: Apache-2.0
#include "sim/app/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "runtime/whole_arrays.hpp"
#include "sim/app/instances.hpp"
#include "sim/app/placed_error.hpp"
#include "sim/model/safetensors.hpp"
#include "sim/plan/execution_history.hpp"
#include "sim/program/data.hpp"
#include "sim/program/initial_weights.hpp"
#include "sim/program/programs.hpp"
#include "sim/program/speculation/speculation.hpp"
#include "sim/strategy/kernel_fusion.hpp"
#include "sim/strategy/single_device_checks.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kTellingSteps = 3;
constexpr std::size_t kLargePlan = 20'000;  // ops

bool is_given(const Scenario& s, std::string_view workload, std::string_view key) {
  const Node* map = s.document.find("workload")->find(workload);
  return map != nullptr && map->find(key) != nullptr;
}

std::vector<std::int32_t> encode(const Scenario& s, std::string_view text) {
  const std::vector<TokenId> ids = tokenizer_of(s)->encode(text);
  return {ids.begin(), ids.end()};
}

/// The prompt of each sequence, one after another. A text decides how long the prompt is.
std::vector<std::int32_t> prompt_of(const Scenario& s, GenerateOptions& o, const ProgramRequest& request) {
  std::vector<std::int32_t> prompt;
  if (request.tokens)
    prompt = *request.tokens;
  else if (!o.text.empty())
    prompt = encode(s, o.text);
  if (prompt.empty()) return {};
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (is_given(s, "generate", "prompt") && length != o.prompt)
    throw UserError{at(*s.document.find("workload")->find("generate")->find("prompt"),
                       fmt::format("the prompt has {} tokens, not {}", length, o.prompt),
                       "leave `prompt` out: the text decides")};
  o.prompt = length;
  std::vector<std::int32_t> all;
  for (std::int64_t b = 0; b < o.batch; ++b) all.insert(all.end(), prompt.begin(), prompt.end());
  return all;
}

/// Puts the caller's tokens in place of the random ones of a forward pass.
class GivenTokens final : public Program {
 public:
  GivenTokens(std::unique_ptr<Program> inner, std::vector<std::int32_t> tokens)
      : inner_{std::move(inner)}, tokens_{std::move(tokens)} {}

  std::span<const Plan> plans() const override { return inner_->plans(); }
  std::optional<Step> next() override {
    std::optional<Step> step = inner_->next();
    if (!step) return step;
    for (PortValues& input : step->inputs)
      if (input.port == "tokens") input.indices = tokens_;
    return step;
  }
  void told(const Outcome& outcome) override { inner_->told(outcome); }

 private:
  std::unique_ptr<Program> inner_;
  std::vector<std::int32_t> tokens_;
};

void check_tokens(const Model& model, const std::vector<std::int32_t>& tokens) {
  const std::int64_t vocabulary = vocabulary_of(model);
  for (const std::int32_t t : tokens)
    if (t < 0 || t >= vocabulary)
      throw UserError{fmt::format("token {} is outside of the model's vocabulary", t),
                      fmt::format("ids are 0 to {}", vocabulary - 1)};
}

std::unique_ptr<Program> make_inference(const Scenario& s, InferOptions o, const Strategy& strategy,
                                        const ProgramRequest& request) {
  if (request.steps) o.steps = *request.steps;
  if (request.tokens) {
    check_tokens(s.model, *request.tokens);
    o.batch = 1;
    o.sequence = static_cast<std::int64_t>(request.tokens->size());
  }
  auto program = inference_program(s.model, o, strategy.inference(s.model, o, request.workspaces));
  if (!request.tokens) return program;
  return std::make_unique<GivenTokens>(std::move(program), *request.tokens);
}

/// A runtime takes storage for the persistent tensors of all plans before the first one runs. The engine does when it
/// first meets a plan: where there are several, each is executed once ahead of time and cut off from the timeline.
class Simulated final : public StepRunner {
 public:
  Simulated(const Machine& machine, std::unique_ptr<Engine> engine, std::unique_ptr<OutcomeSource> source,
            const Program& program)
      : engine_{std::move(engine)}, source_{std::move(source)} {
    if (program.plans().size() < 2) return;
    if (machine.cost->sees_reuse()) history_.emplace();
    for (const Plan& plan : program.plans()) {
      engine_->execute(plan, {});
      plans_.push_back(ahead_++);
    }
  }

  Outcome run(const Plan& plan, Step& step) override {
    if (history_) history_->next(plan, step.bindings);
    engine_->execute(plan, step.bindings);
    plans_.push_back(step.plan);
    return source_->outcome(plan, step);
  }

  std::map<RankId, AllocationTrace> take_allocations() override { return engine_->take_allocations(); }

  Timeline take() override {
    Timeline all = engine_->take();
    if (ahead_ == 0) return all;
    std::vector<std::uint32_t> kept(plans_.size() - ahead_);
    std::iota(kept.begin(), kept.end(), ahead_);
    Timeline out = packed(all, kept);
    for (Peak peak : all.peaks) {
      peak.instance = kept_instance(peak.instance);
      out.peaks.push_back(std::move(peak));
    }
    out.instance_plans.clear();
    return out;
  }

 private:
  /// A peak of an execution that is cut off stands for the first one of the same plan that is not.
  std::uint32_t kept_instance(std::uint32_t instance) const {
    if (instance >= ahead_) return instance - ahead_;
    const auto first = std::find(plans_.begin() + ahead_, plans_.end(), plans_[instance]);
    return first == plans_.end() ? 0 : static_cast<std::uint32_t>(first - plans_.begin()) - ahead_;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<OutcomeSource> source_;
  std::optional<ExecutionHistory> history_;  // where the cost model looks at caches
  std::vector<std::uint32_t> plans_;         // of each execution
  std::uint32_t ahead_ = 0;                  // executions that are cut off
};

class Executed final : public StepRunner {
 public:
  Executed(const Scenario& scenario, const Program& program, Executor& executor, const Wiring& wiring)
      : executor_{executor} {
    if (scenario.speculates() && scenario.options.workload.generate->speculate->synthetic)
      drawn_ = outcomes_of(scenario, wiring);
    for (const Plan& plan : program.plans()) {
      executor_.prepare(plan);
      write_constants(executor_, plan);
    }
    write_weights(scenario, program);
  }

  Outcome run(const Plan& plan, Step& step) override {
    for (const PortValues& input : step.inputs) {
      if (input.numbers.empty())
        write_port(executor_, plan, input.port, std::span<const std::int32_t>{input.indices});
      else
        write_port(executor_, plan, input.port, std::span<const double>{input.numbers});
    }
    executor_.execute(plan, step.bindings);
    if (drawn_) return drawn_->outcome(plan, step);
    Outcome outcome;
    for (const std::string& port : step.outputs) outcome.values[port] = read_port(executor_, plan, port);
    return outcome;
  }
  Timeline take() override { return executor_.take(); }

 private:
  void write_weights(const Scenario& s, const Program& program);

  Executor& executor_;
  std::unique_ptr<OutcomeSource> drawn_;
};

/// Throws UserError that lists what a checkpoint lacks.
WeightCheck checked(const Scenario& s, const Weights& weights) {
  WeightCheck check = check_against(s.model, weights);
  if (check.fits()) return check;
  const auto first = [](std::string_view what, const std::vector<std::string>& names) {
    return names.empty() ? std::string{} : fmt::format("; {} {}, the first is {}", names.size(), what, names.front());
  };
  throw UserError{fmt::format("the weights in {} are not those of the model{}{}{}", in_quotes(s.weights_path),
                              first("missing", check.missing), first("of another shape", check.misshapen),
                              first("unknown", check.extra))};
}

void Executed::write_weights(const Scenario& s, const Program& program) {
  std::optional<Weights> weights;
  std::optional<WeightCheck> check;
  if (!s.weights_path.empty()) {
    weights.emplace(s.weights_path);
    check = checked(s, *weights);
  }
  InitialWeights initial{s.model, static_cast<std::uint64_t>(s.seed())};
  for (std::size_t i = 0; i < s.model.parameters.size(); ++i) {
    const auto holds = [&](const Plan& plan) { return plan.find_placement(ParameterId{i}) != nullptr; };
    const auto plan = std::find_if(program.plans().begin(), program.plans().end(), holds);
    if (plan == program.plans().end()) continue;
    UnsetVector<double> values;
    if (check) {
      values.resize(static_cast<std::size_t>(check->found[i]->elements()));
      weights->copy(*check->found[i], std::span<double>{values});
    } else {
      values = initial.take(ParameterId{i});
    }
    write_parameter(executor_, *plan, ParameterId{i}, values);
  }
  for (const Plan& plan : program.plans()) write_master_copies(executor_, plan);
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of(const Scenario& s) {
  return s.tokenizer_path.empty() ? make_byte_tokenizer() : load_tokenizer(s.tokenizer_path);
}

static std::unique_ptr<Program> program_of(const Scenario& s, const Wiring& wiring, const ProgramRequest& request) {
  if (s.options.workload.serve)
    throw UserError{fmt::format("the workload of {} is `serve`", in_quotes(s.name)), "use `orrery serve`"};
  if (s.options.workload.cached_training)
    throw UserError{fmt::format("the workload of {} is `cached_training`, which is simulated only", in_quotes(s.name)),
                    "use `orrery simulate`"};
  const std::unique_ptr<Strategy> strategy = wiring.strategy(s.strategy, s.strategy_options);
  if (s.options.workload.train) {
    TrainOptions o = *s.options.workload.train;
    if (request.steps) o.steps = *request.steps;
    std::vector<std::int32_t> text;
    if (request.tokens)
      text = *request.tokens;
    else if (!s.text_path.empty())
      text = encode(s, read_file(s.text_path));
    const std::unique_ptr<RematSolver> remat = wiring.remat();
    TrainOptions lowered = o;
    lowered.remat = remat.get();
    return training_program(s.model, o, strategy->train_step(s.model, lowered, request.workspaces), std::move(text));
  }
  if (s.options.workload.infer) return make_inference(s, *s.options.workload.infer, *strategy, request);
  GenerateOptions o = *s.options.workload.generate;
  std::vector<std::int32_t> prompt = prompt_of(s, o, request);
  if (o.speculate) {
    check_generate(s.model, o);
    check_tokens(s.model, prompt);
    SpeculationPlans plans = lower_speculation(s.model, s.drafter, o, s.layout, request.workspaces);
    if (request.fused) {
      plans.start = fuse_kernels(plans.start);
      for (auto* each : {&plans.levels, &plans.verify})
        for (Plan& plan : *each) plan = fuse_kernels(plan);
    }
    return speculation_program(s.model, s.drafter, o, s.layout, std::move(plans), std::move(prompt));
  }
  GenerationPlans plans = strategy->generation(s.model, o, request.workspaces);
  if (request.fused) plans.decode = fuse_kernels(plans.decode);
  if (prompt.empty()) prompt = prompts_of(s.model, o);
  check_tokens(s.model, prompt);
  return generation_program(s.model, o, std::move(plans), std::move(prompt));
}

std::unique_ptr<Program> make_program(const Scenario& s, const Wiring& wiring, const ProgramRequest& request) {
  try {
    return program_of(s, wiring, request);
  } catch (const UserError& e) {
    throw placed(e, s.document);
  }
}

std::unique_ptr<StepRunner> simulated(const Machine& machine, const Wiring& wiring, const Program& program,
                                      const Scenario& scenario, Logged logged) {
  const ScenarioOptions& o = scenario.options;
  return std::make_unique<Simulated>(machine, wiring.engine(machine, o.fidelity, o.memory, logged),
                                     outcomes_of(scenario, wiring), program);
}

std::unique_ptr<StepRunner> executed(const Scenario& scenario, const Program& program, Executor& executor,
                                     const Wiring& wiring) {
  return std::make_unique<Executed>(scenario, program, executor, wiring);
}

std::unique_ptr<OutcomeSource> outcomes_of(const Scenario& s, const Wiring& wiring) {
  const auto seed = static_cast<std::uint64_t>(s.seed());
  if (!s.speculates()) return wiring.outcomes(seed);
  const GenerateOptions& o = *s.options.workload.generate;
  const DraftAccuracy& a = o.speculate->accuracy;
  if (a.hits.empty() && !a.has_confidence() && s.trace_path.empty())
    throw UserError{"nothing says how often drafts are right", "give `accuracy: {hits: [[0.7, 0.1]]}`, or a `trace`"};
  std::vector<std::vector<std::int64_t>> trace;
  if (!s.trace_path.empty()) trace = parse_acceptance_trace(read_file(s.trace_path), s.trace_path, o.batch);
  return speculation_outcomes(*o.speculate, s.layout, o.batch, vocabulary_of(s.model), seed, std::move(trace));
}

namespace {

/// Owners without a tensor are what only other plans of the program name: reports give them as the rest of the peak.
void finish(Recording& r, Timeline timeline) {
  r.timeline = std::move(timeline);
  for (const Step& s : r.steps) r.timeline.instance_plans.push_back(s.plan);
  for (Peak& p : r.timeline.peaks) std::erase_if(p.owners, [](const auto& owner) { return owner.first.is_none(); });
}

}  // namespace

Recording drive(Program& program, StepRunner& runner, const StepCallback& before_step, std::size_t most) {
  Recording r;
  while (r.steps.size() < most) {
    before_step(r.steps.size());
    std::optional<Step> step = program.next();
    if (!step) break;
    Outcome outcome = runner.run(program.plans()[step->plan], *step);
    program.told(outcome);
    r.steps.push_back(std::move(*step));
    r.outcomes.push_back(std::move(outcome));
  }
  finish(r, runner.take());
  return r;
}

Recording replay(const Program& program, const std::vector<Step>& steps, StepRunner& runner,
                 const StepCallback& before_step) {
  Recording r;
  for (const Step& step : steps) {
    before_step(r.steps.size());
    r.steps.push_back(step);
    r.outcomes.push_back(runner.run(program.plans()[step.plan], r.steps.back()));
  }
  finish(r, runner.take());
  return r;
}

std::vector<const Plan*> plans_of(const Program& program) {
  std::vector<const Plan*> plans;
  for (const Plan& plan : program.plans()) plans.push_back(&plan);
  return plans;
}

PlanDigests digests_of(const Program& program) { return describe(plans_of(program), StorageUses::Told); }

Simulation simulate_scenario(const Scenario& s, const Machine& machine, const Wiring& wiring,
                             std::optional<std::int64_t> steps, const StepCallback& before_step, const LoggedOf& logged,
                             bool fused) {
  const auto start = std::chrono::steady_clock::now();
  ProgramRequest request{.workspaces = machine.workspaces, .steps = steps, .fused = fused};
  const Workload& w = s.options.workload;
  const std::int64_t asked = w.train ? w.train->steps : w.infer ? w.infer->steps : 0;
  if (!steps && asked > kTellingSteps && wiring.strategy(s.strategy, s.strategy_options)->steps_repeat())
    request.steps = kTellingSteps;
  Simulation out;
  out.program = make_program(s, wiring, request);
  for (const Plan& plan : out.program->plans()) check_fits(machine.cluster(), plan.mesh.size());
  const auto runner = simulated(machine, wiring, *out.program, s, logged ? logged(*out.program) : Logged::Nothing);
  out.program->leave_out_samples();
  const bool is_large = out.program->plans().front().ops.size() > kLargePlan && !steps && !w.generate;
  out.recording = drive(*out.program, *runner, before_step, is_large ? 1 : SIZE_MAX);
  out.allocations = runner->take_allocations();
  out.recording.timeline.machine = machine.cost->machine();
  out.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace orrery
