// SPDX-License-Identifier: Apache-2.0
#include "sim/app/gpu_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "calibrate/draw.hpp"
#include "calibrate/statistics.hpp"
#include "sim/app/drawn_model.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kRepeats = 2;  // rounds of a step, beside the one that warms up
constexpr char kBehind[] = "behind";  // the line that tells for how long streams stood still

struct StepCount {
  std::int64_t trainings, generations, offloaded;
};
constexpr StepCount kFull{16, 8, 4}, kQuick{6, 4, 2};

std::string text(std::int64_t n) { return std::to_string(n); }

double weights(const DrawnModel& m) {
  return double(m.layers) * (4 * double(m.hidden * m.hidden) + (m.llama ? 3 : 2) * double(m.hidden * m.ffn)) +
         double(m.vocab * m.hidden);
}

DrawnModel draw_model(Random& r) {
  constexpr std::int64_t kDims[] = {64, 64, 96, 128, 128};
  DrawnModel s{.llama = r.below(5) < 2};
  const std::int64_t dim = one_of(r, kDims);
  s.heads = std::max<std::int64_t>(4, log_integer(r, 512, 5120) / dim / 4 * 4);
  s.hidden = s.heads * dim;
  s.kv_heads = s.llama && r.below(2) == 0 ? s.heads / 4 : s.heads;
  s.ffn = s.usual_ffn();
  s.layers = log_integer(r, 1, 2);
  s.vocab = log_integer(r, 2048, 16384) / 64 * 64;
  return s;
}

constexpr char kSingle[] = "single", kOffloaded[] = "zero-offload";

/// A list of one strategy, as it is by default.
Node strategy_of(const std::string& name) {
  Node strategy = Node::map(), list = Node::list();
  strategy.fields.emplace_back(name, Node::map());
  list.items.push_back(std::move(strategy));
  return list;
}

Scenario make(std::string name, Node model, const std::string& strategy, const char* kind, Node work,
              const std::string& cluster, const Locations& locations) {
  Node workload = Node::map(), document = Node::map();
  workload.fields.emplace_back(kind, std::move(work));
  document.fields.emplace_back("strategy", strategy_of(strategy));
  document.fields.emplace_back("model", std::move(model));
  document.fields.emplace_back("cluster", Node::of(cluster));
  document.fields.emplace_back("workload", std::move(workload));
  return make_scenario(std::move(document), name, locations);
}

Scenario draw_training(Random& r, std::int64_t i, const std::string& strategy, const std::string& cluster,
                       const Locations& locations) {
  constexpr double kMost = 1e13, kMostInF32 = 4e11, kMostWeights = 1.3e8;  // FLOP of a step; numbers
  constexpr const char* kTypes[] = {"bf16", "bf16", "f16", "f32"};
  constexpr const char* kRecompute[] = {"none", "none", "selective", "full"};
  const std::string type = kTypes[i % 4], recompute = one_of(r, kRecompute);
  for (;;) {
    const DrawnModel s = draw_model(r);
    const std::int64_t sequence = log_integer(r, 256, 16384) / 64 * 64, tokens = log_integer(r, 1024, 16384),
                       batch = std::max<std::int64_t>(1, tokens / sequence);
    const double rows = double(batch * sequence),
                 flops = 6 * weights(s) * rows + 6 * double(s.layers * s.hidden) * rows * double(sequence);
    if (flops > (type == "f32" ? kMostInF32 : kMost) || weights(s) > kMostWeights) continue;
    return make(
        fmt::format("step.{}.{}.{}.h{}.l{}.s{}.b{}.{}", i, strategy == kSingle ? "train" : strategy,
                    s.llama ? "llama" : "gpt", s.hidden, s.layers, sequence, batch, type),
        config_of(s, sequence), strategy, "train",
        map_of({{"batch", text(batch)}, {"sequence", text(sequence)}, {"dtype", type}, {"recompute", recompute}}),
        cluster, locations);
  }
}

Scenario draw_generation(Random& r, std::int64_t i, const std::string& cluster, const Locations& locations) {
  constexpr double kMostWeights = 1.3e8, kMostCached = 1e9;  // numbers
  constexpr const char* kTypes[] = {"bf16", "f32", "bf16", "f16"};
  const std::string type = kTypes[i % 4];
  for (;;) {
    const DrawnModel s = draw_model(r);
    const std::int64_t prompt = log_integer(r, 128, 4096), batch = log_integer(r, 1, 32);
    if (weights(s) > kMostWeights || double(batch * prompt * s.hidden * s.layers) > kMostCached) continue;
    return make(fmt::format("step.{}.generate.{}.h{}.l{}.s{}.b{}.{}", i, s.llama ? "llama" : "gpt", s.hidden, s.layers,
                            prompt, batch, type),
                config_of(s, prompt + 64), kSingle, "generate",
                map_of({{"batch", text(batch)}, {"prompt", text(prompt)}, {"tokens", "16"}, {"dtype", type}}), cluster,
                locations);
  }
}

}  // namespace

std::vector<Scenario> draw_gpu_steps(bool quick, std::uint64_t seed, const std::string& cluster,
                                     const Locations& locations) {
  const StepCount counts = quick ? kQuick : kFull;
  Random random{seed, 7};
  std::vector<Scenario> steps;
  const auto count = [&] { return static_cast<std::int64_t>(steps.size()); };
  while (count() < counts.trainings) steps.push_back(draw_training(random, count(), kSingle, cluster, locations));
  while (count() < counts.trainings + counts.generations)
    steps.push_back(draw_generation(random, count(), cluster, locations));
  // Behind all others, so that steps which were measured before there were these are drawn as they were.
  for (std::int64_t i = 0; i < counts.offloaded; ++i)
    steps.push_back(draw_training(random, count(), kOffloaded, cluster, locations));
  return steps;
}

OpTimes::OpTimes(std::string path) : path_{std::move(path)} {
  std::ifstream in{path_};
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields{line};
    std::string plan, work, seconds;
    if (!std::getline(fields, plan, '\t') || !std::getline(fields, work, '\t') || !(fields >> seconds))
      throw UserError{fmt::format("{} has a line that tells no op: {}", path_, in_quotes(line)),
                      "lines have plan, work and seconds between tabs; remove it to measure anew"};
    plans_[plan][work] = std::stod(seconds);
  }
}

void OpTimes::put(const std::string& plan, std::vector<ValidatedOp>& ops) const {
  const auto known = plans_.find(plan);
  if (known == plans_.end()) return;
  for (ValidatedOp& op : ops)
    if (const auto it = known->second.find(op.text); it != known->second.end()) op.measured = it->second;
}

void OpTimes::add(const std::string& plan, const std::vector<ValidatedOp>& ops) {
  std::ofstream out{path_, std::ios::app};
  for (const ValidatedOp& op : ops) {
    out << fmt::format("{}\t{}\t{:.6g}\n", plan, op.text, op.measured);
    plans_[plan][op.text] = op.measured;
  }
  if (!out.flush()) throw DeviceError{fmt::format("cannot write {}", path_)};
}

Seconds behind_ops(const Timeline& timeline) {
  constexpr double kHostBound = 20e-6;  // seconds: what is longer waits for the host, or for another stream
  std::vector<Span> spans{timeline.spans.begin(), timeline.spans.end()};
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start_ps < b.start_ps; });
  std::vector<double> gaps;
  for (std::size_t i = 1; i < spans.size(); ++i) {
    const double gap = double(spans[i].start_ps - spans[i - 1].end_ps) * 1e-12;
    if (spans[i].instance == spans[i - 1].instance && gap >= 0 && gap < kHostBound) gaps.push_back(gap);
  }
  return Seconds{gaps.empty() ? 0.0 : median(std::move(gaps))};
}

namespace {

// The last of the ops is the gap behind one of them.

std::vector<ValidatedOp> known_ops(const ValidatedPlan& step, const OpTimes& times) {
  std::vector<ValidatedOp> ops = step.ops;
  ops.push_back({.text = kBehind});
  times.put(step.name, ops);
  return ops;
}

std::vector<ValidatedOp> measured_ops(const Scenario& step, OpTimes& times, AppContext& context) {
  Validation v = validate_scenarios({step}, {.repeats = kRepeats}, context);
  ValidatedPlan& plan = v.plans.front();
  plan.ops.push_back({.text = kBehind, .measured = behind_ops(plan.measurement).base()});
  times.add(step.name, plan.ops);
  return std::move(plan.ops);
}

void add_cases(GpuSteps& all, std::vector<ValidatedOp> ops, std::vector<double>& behind) {
  const auto group = static_cast<std::uint32_t>(1 + all.measured);
  const double behind_one = ops.back().measured;
  ops.pop_back();
  const auto by_host = [](const ValidatedOp& op) { return runs_on_host(op.work); };
  if (std::none_of(ops.begin(), ops.end(), by_host)) behind.push_back(behind_one);  // else streams run side by side
  for (const ValidatedOp& op : ops)
    if (op.measured > 0) all.cases.push_back({op.work, op.bindings, op.measured, group, true});
}

}  // namespace

GpuSteps measure_gpu_steps(const std::vector<Scenario>& steps, std::int64_t memory_bytes, const std::string& file,
                           const std::function<bool()>& is_over, AppContext& context) {
  constexpr double kMostMemory = 0.8;
  OpTimes times{file};
  GpuSteps all;
  std::vector<double> behind;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    context.interrupt.check();
    context.console.progress("steps", double(i) / double(steps.size()));
    if (!times.knows(steps[i].name) && is_over()) {
      ++all.left;
      continue;
    }
    try {
      const bool is_fresh = !times.knows(steps[i].name);
      const ValidatedPlan predicted = predict_for_runtime(steps[i], context);
      if (double(predicted.peak_predicted) > kMostMemory * double(memory_bytes)) continue;
      add_cases(all, is_fresh ? measured_ops(steps[i], times, context) : known_ops(predicted, times), behind);
      ++all.measured;
      all.fresh += is_fresh;
    } catch (const UserError& e) {
      all.skipped.push_back(fmt::format("{}: {}", steps[i].name, e.diagnostics().front().message));
    } catch (const MissingError&) {
      throw;
    } catch (const DeviceError& e) {
      all.skipped.push_back(fmt::format("{}: {}", steps[i].name, e.what()));
    }
  }
  context.console.end_progress();
  if (!behind.empty()) all.behind = Seconds{median(std::move(behind))};
  return all;
}

}  // namespace orrery
