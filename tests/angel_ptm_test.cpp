// SPDX-License-Identifier: Apache-2.0
// The strategy angel-ptm: pages, the schedule over life-times, and updates that passes do not wait for against a loop
// that is as late.
#include <catch2/catch.hpp>
#include <random>

#include "sim/strategy/offload/lifetime.hpp"
#include "tests/offload_testing.hpp"
#include "tests/reference_adamw.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Plan angel_plan(const Model& model, const TrainOptions& o, const std::string& options) {
  return strategy_of("angel-ptm", "{page: 4 kB, " + options + "}")->train_step(model, o, &host_workspaces());
}

/// The rows of one microbatch of a step's inputs.
std::vector<PortValues> rows_of(const std::vector<PortValues>& inputs, std::size_t microbatch, std::size_t count) {
  std::vector<PortValues> out = inputs;
  for (PortValues& v : out) {
    const auto cut = [&](auto& values) {
      const std::size_t n = values.size() / count;
      values = {values.begin() + static_cast<std::ptrdiff_t>(microbatch * n),
                values.begin() + static_cast<std::ptrdiff_t>((microbatch + 1) * n)};
    };
    cut(v.indices);
    cut(v.numbers);
  }
  return out;
}

/// The group of each parameter, as the plan's updater visits them: part `g` of all pages.
using GroupOf = std::function<std::size_t(const std::string&)>;

/// One device that computes a microbatch at a time, gradients only. Behind microbatch i it publishes what was updated
/// beside it, then takes the gradients of group i mod `count` that came since, and updates.
Trained lock_free_loop(const Model& model, const TrainOptions& o, const GroupOf& group_of) {
  const auto count = static_cast<std::size_t>(o.microbatches);
  TrainOptions one = o;
  one.microbatches = 1;
  one.batch = o.batch / o.microbatches;
  Plan plan = single()->train_step(model, one, &host_workspaces());
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 3, 0.02);
  auto data = training_program(model, o, single()->train_step(model, o, &host_workspaces()), {});
  Values weights, sums;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& p = model.parameters[i];
    weights[p.name] = read_parameter(*executor, plan, ParameterId{i}, p.elements());
    sums[p.name] = Vec(static_cast<std::size_t>(p.elements()), 0.0);
  }
  std::vector<ReferenceAdamW> adam(
      count, {o.optimizer.rate, o.optimizer.beta1, o.optimizer.beta2, o.optimizer.epsilon, o.optimizer.decay, 0});
  Values newest = weights, published;
  Trained t;
  while (auto step = data->next()) {
    double loss = 0;
    for (std::size_t j = 0; j < count; ++j) {
      for (std::size_t i = 0; i < model.parameters.size(); ++i)
        write_parameter(*executor, plan, ParameterId{i}, weights.at(model.parameters[i].name));
      put(*executor, plan, rows_of(step->inputs, j, count));
      executor->execute(plan, step->bindings);
      loss += read_port(*executor, plan, "loss")[0] / double(count);
      for (std::size_t i = 0; i < model.parameters.size(); ++i) {
        const std::string& name = model.parameters[i].name;
        const Vec g = read_gradient(*executor, plan, ParameterId{i}, model.parameters[i].elements());
        for (std::size_t k = 0; k < g.size(); ++k) sums[name][k] += g[k] / double(count);
      }
      for (const auto& [name, values] : published) weights[name] = values;
      Values mine, gradients;
      for (auto& [name, values] : newest)
        if (group_of(name) == j) {
          mine[name] = values;
          gradients[name] = std::exchange(sums[name], Vec(values.size(), 0.0));
        }
      adam[j].update(mine, gradients);
      for (const auto& [name, values] : mine) newest[name] = values;
      published = mine;
    }
    t.losses.push_back(loss);
  }
  for (const Parameter& p : model.parameters) t.weights.push_back(weights.at(p.name));
  return t;
}

/// From names of the plan's runs of pages and the parameters that lie in them.
GroupOf groups_of(const Plan& plan, const Model& model, std::size_t count) {
  std::map<std::uint32_t, double> before;  // elements of runs ahead of each
  double all = 0;
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    const std::string_view name = plan.names[plan.tensors[t].name];
    if (!plan.tensors[t].base.is_none() || name.substr(0, 4) != "run." || name.find(".weights") == name.npos) continue;
    before[static_cast<std::uint32_t>(t)] = all;
    all += double(plan.shape(TensorId{t}).elements());
  }
  std::map<std::string, std::size_t> groups;
  for (const ParameterPlacement& p : plan.placements) {
    const auto it = before.find(plan.owner(p.weight.tensor).value);
    if (it != before.end())
      groups[model[p.parameter].name] = std::min(count - 1, static_cast<std::size_t>(it->second / all * double(count)));
  }
  return [groups](const std::string& name) { return groups.at(name); };
}

}  // namespace

TEST_CASE("pages that move by life-times give the same weights", "[offload]") {
  const OffloadCase c = GENERATE(
      OffloadCase{"gpt2", "device_memory: 1 MB"}, OffloadCase{"llama", "device_memory: 1 MB, cache_states: false", 2},
      OffloadCase{"tied", "device_memory: 1 MB, states: disk"},
      OffloadCase{"mixtral", "device_memory: 1 MB, states: disk, buffers: 1, memory: pageable"},
      OffloadCase{"gpt2", "device_memory: 10 GB"},
      OffloadCase{"gpt2", "device_memory: 1 MB, own_gradients: false, cache_states: false"},
      OffloadCase{"gpt2", "device_memory: 700 kB, parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}", 2});
  CAPTURE(c.model, c.options);
  CHECK(off_one_device(c, angel_plan) < 1e-9);
}

TEST_CASE("gradients on the host lie beside their weights, or in their place", "[offload]") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  o.batch = 1;
  o.dtype = Precision::BF16;
  const auto on_host = [&](const char* gradients, TensorRole role) {
    const Plan plan =
        angel_plan(model, o, std::string{"device_memory: 300 kB, cache_states: false, own_gradients: "} + gradients);
    double sum = 0;
    for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
      const Tensor& x = plan.tensors[t];
      if (x.base.is_none() && x.persistent && x.tier == Tier::Pinned && x.role == role)
        sum += plan.size(TensorId{t}).base();
    }
    return sum;
  };
  const double weights = on_host("true", TensorRole::Parameter);
  CHECK(weights >= 2.0 * double(elements_of(model)));
  CHECK(on_host("true", TensorRole::Gradient) == weights);
  CHECK(on_host("true", TensorRole::OptimizerState) == 6 * weights);  // 12 bytes beside 2 and 2
  CHECK(on_host("false", TensorRole::Gradient) == 0);
}

TEST_CASE("angel-ptm trains in a quarter of the plain plan's memory", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "mixtral");
  const char* states = GENERATE("host", "disk");
  CAPTURE(name, states);
  const QuarterRun run = train_in_a_quarter(name, [&](const Model& model, const TrainOptions& o, std::int64_t bytes) {
    return angel_plan(model, o, "usable: 0.8, device_memory: " + std::to_string(bytes) + " B, states: " + states);
  });
  CHECK(run.difference < 1e-9);
  CHECK(moves_of(run.timeline, Tier::Pinned, Tier::Device) > 0);
}

/// Three models, four sizes of memory, three of pages, two tiers.
TEST_CASE("angel-ptm's planned, simulated and counted moves are the same", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "tied");
  const int memory = GENERATE(500, 700, 1000, 20000);
  const int page = GENERATE(1, 4, 32);
  const char* states = GENERATE("host", "disk");
  CAPTURE(name, memory, page, states);
  const Model model = small_model(name);
  TrainOptions o = offload_options();
  o.batch = 1;
  o.steps = 1;
  const std::string options = "{page: " + std::to_string(page) + " kB, device_memory: " + std::to_string(memory) +
                              " kB, usable: 1, states: " + states + "}";
  const Plan plan = strategy_of("angel-ptm", options)->train_step(model, o, &host_workspaces());
  const Timeline simulated = simulate_steps(plan, 1);
  const OffloadRun run = train_capped(model, o, plan);
  CHECK(simulated.transfers == run.timeline.transfers);
  CHECK(planned_transfers(plan) == run.timeline.transfers);
  CHECK(peak_of(simulated, Tier::Device) <= memory * 1000);
  CHECK(peak_of(run.timeline, Tier::Device) <= memory * 1000);
  const bool reads = planned_moves(plan, "read.") > 0;
  CHECK(reads == (std::string{states} == "disk" && memory < 20000));
}

TEST_CASE("a page has two tensors at most, and each pair leaves one empty at most") {
  const Model model = small_model("gpt2");
  const Plan plan = single()->train_step(model, offload_options(), nullptr);
  const Updates updates = updates_of(plan, ClassId{0});
  const std::int64_t page = GENERATE(16, 100, 512, 5000);
  const ChunkLayout layout = lay_out_pages(plan, updates, page);
  std::map<std::pair<std::uint32_t, std::int64_t>, int> sharers;
  std::int64_t used = 0;
  for (std::size_t i = 0; i < updates.all.size(); ++i) {
    const std::int64_t n = plan.shape(updates.all[i].weight).elements();
    used += n;
    for (std::int64_t p = layout.slots[i].offset / page; p <= (layout.slots[i].offset + n - 1) / page; ++p)
      ++sharers[{layout.slots[i].chunk, p}];
    CHECK(layout.slots[i].offset + n <= layout.sizes[layout.slots[i].chunk]);
  }
  for (const auto& [where, count] : sharers) CHECK(count <= 2);
  CHECK(layout.elements() - used <= page * static_cast<std::int64_t>(layout.size()));
}

TEST_CASE("the schedule keeps within the memory, and never moves more than bringing all per pass") {
  std::mt19937 random{17};  // NOLINT: the same cases each time
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>{low, high}(random);
  };
  std::int64_t kept = 0;
  for (int round = 0; round < 200; ++round) {
    const auto chunks = static_cast<std::uint32_t>(draw(3, 12));
    std::vector<std::int64_t> bytes;
    for (std::uint32_t k = 0; k < chunks; ++k) bytes.push_back(draw(1, 9));
    std::vector<CacheStep> steps;
    std::vector<std::uint32_t> passes;
    std::int64_t visits = 0;
    for (std::uint32_t pass = 0; pass < 4; ++pass)
      for (std::uint32_t i = 0; i < chunks; ++i) {
        const std::uint32_t k = pass % 2 == 0 ? i : chunks - 1 - i;
        const std::int64_t uses = draw(0, 2);
        visits += uses > 0;
        for (std::int64_t u = 0; u < uses; ++u) {
          steps.push_back({{k}, {}, draw(9, 40)});
          passes.push_back(pass);
        }
      }
    const CachePlan plan = schedule_lifetimes(bytes, steps, passes);
    CHECK(plan.misses <= visits);
    CHECK(plan.misses == plan.evictions);
    kept += visits - plan.misses;
    std::vector<bool> here(chunks, false);
    std::size_t next = 0;
    std::int64_t held = 0;
    for (std::uint32_t s = 0; s <= steps.size(); ++s) {
      for (; next < plan.events.size() && plan.events[next].step == s; ++next) {
        const CacheEvent& e = plan.events[next];
        CHECK(here[e.chunk] != e.comes);
        here[e.chunk] = e.comes;
        held += e.comes ? bytes[e.chunk] : -bytes[e.chunk];
      }
      if (s == steps.size()) break;
      CHECK(held <= steps[s].capacity);
      for (const std::uint32_t k : steps[s].needed) CHECK(here[k]);
    }
    CHECK(held == 0);
  }
  CHECK(kept > 0);
}

TEST_CASE("lock-free updates are as late as a loop that says how late, and nothing else", "[offload]") {
  const std::int64_t microbatches = GENERATE(1, 2, 4);
  const char* options = GENERATE("device_memory: 1 MB", "device_memory: 5 MB, states: disk, buffers: 2");
  const char* name = GENERATE("gpt2", "tied");
  CAPTURE(microbatches, options, name);
  const Model model = small_model(name);
  TrainOptions o = offload_options();
  o.microbatches = microbatches;
  o.steps = 4;
  o.optimizer.clip = 0;
  const Plan plan = angel_plan(model, o, std::string{options} + ", lock_free: true");
  const OffloadRun run = train_capped(model, o, plan);
  const GroupOf groups = groups_of(plan, model, static_cast<std::size_t>(microbatches));
  CHECK(difference(run.trained, lock_free_loop(model, o, groups)) < 1e-9);
  CHECK(difference(run.trained, train(model, o, *single())) > 1e-4);
  const Timeline simulated = simulate_steps(plan, o.steps);
  CHECK(simulated.transfers == run.timeline.transfers);
}

TEST_CASE("lock-free updates of several ranks are as late as on one", "[offload]") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  o.optimizer.clip = 0;
  const Plan one = angel_plan(model, o, "device_memory: 1 MB, lock_free: true");
  const Plan two = angel_plan(
      model, o, "device_memory: 1 MB, lock_free: true, parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}");
  CHECK(difference(train_capped(model, o, two).trained, train_capped(model, o, one).trained) < 1e-9);
}

TEST_CASE("what angel-ptm cannot do is refused") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  const auto refusal = [&](const char* options) { return user_error([&] { angel_plan(model, o, options); }); };
  CHECK_THAT(refusal("device_memory: 10 kB"), Catch::Contains("allow more device memory"));
  CHECK_THAT(refusal("device_memory: 1 MB, lock_free: true"), Catch::Contains("optimizer: {clip: 0}"));
  CHECK_THAT(refusal("device_memory: 1 MB, states: tape"), Catch::Contains("disk"));
  o.optimizer.clip = 0;
  o.microbatches = 2;
  CHECK_THAT(refusal("device_memory: 1 MB, lock_free: true, parallel: {mesh: pp2}"), Catch::Contains("pp"));
  CHECK_THAT(refusal("device_memory: 1 MB, lock_free: true, parallel: {mesh: dp2}"), Catch::Contains("zero3"));
  o.optimizer.kind = OptimizerKind::Sgd;
  CHECK_THAT(refusal("device_memory: 1 MB, lock_free: true"), Catch::Contains("adamw"));
}
