// SPDX-License-Identifier: Apache-2.0
// Plans that come again: replayed by graphs, the same numbers as enqueued one op after another. And memory that is
// asked for tensor by tensor.
#include <catch2/catch.hpp>

#include "runtime/cuda/gpu_executor.hpp"
#include "sim/base/error.hpp"
#include "sim/base/yaml.hpp"
#include "tests/emulated_gpu.hpp"
#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Model small_llama() { return llama_of({.inner = 24, .layers = 1, .kv_heads = 1, .vocab = 40}); }

/// What a program's plans gave, step by step: the loss, or the tokens.
std::vector<double> results(Program& program, const Model& model, Executor& executor, const std::string& port) {
  for (const Plan& plan : program.plans()) {
    executor.prepare(plan);
    fill(executor, plan, model, 3, 0.05);
  }
  std::vector<double> all;
  while (const auto step = program.next()) {
    const Plan& plan = program.plans()[step->plan];
    put(executor, plan, step->inputs);
    executor.execute(plan, step->bindings);
    Outcome outcome;
    for (const std::string& p : step->outputs) outcome.values[p] = read_port(executor, plan, p);
    for (const double x : read_port(executor, plan, port)) all.push_back(x);
    program.told(outcome);
  }
  return all;
}

/// Plans outlive the executors that have run them.
using Kept = std::vector<std::unique_ptr<Program>>;

std::vector<double> losses(Executor& executor, std::int64_t microbatches, Kept& kept) {
  const Model model = small_llama();
  TrainOptions o;
  o.batch = 2;
  o.microbatches = microbatches;
  o.sequence = 5;
  o.steps = 4;
  o.optimizer = {.rate = 1e-2, .clip = 0.5};
  kept.push_back(training_program(model, o, single()->train_step(model, o, &gpu_workspaces()), {}));
  return results(*kept.back(), model, executor, "loss");
}
std::vector<double> losses(std::int64_t microbatches) {
  Kept kept;
  const auto executor = make_gpu_executor(std::make_shared<EmulatedGpu>());
  return losses(*executor, microbatches, kept);
}

}  // namespace

TEST_CASE("training by a graph gives the numbers of training without, and captures once", "[cuda]") {
  const std::uint64_t seed = GENERATE(1, 2, 3);
  Kept kept;
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.seed = seed});
  const std::vector<double> want = losses(2);
  const auto executor = make_gpu_executor(gpu, {}, {.graphs = true});
  CHECK(losses(*executor, 2, kept) == want);
  REQUIRE(want.size() == 4);
  CHECK(gpu->captures() == 1);
  CHECK(gpu->graph_launches() == 4);
  const Timeline timeline = executor->take();
  CHECK(timeline.instance_ends_ps.size() == 4);
  for (const Span& s : timeline.spans) CHECK(s.end_ps >= s.start_ps);
}

TEST_CASE("graphs of several ranks take storage in the order in which they took it", "[cuda]") {
  const std::string mesh = GENERATE("{mesh: dp2, data: {kind: zero3}}", "{mesh: dp2 tp2}", "{mesh: pp2}");
  const Model model = gpt2_of({.hidden = 8, .layers = 2, .vocab = 24, .positions = 8});
  TrainOptions o;
  o.batch = 4;
  o.microbatches = 2;
  o.sequence = 2;
  o.steps = 2;
  const auto run = [&](bool graphs) {
    const auto gpu = std::make_shared<EmulatedGpu>();
    Kept kept;
    kept.push_back(training_program(model, o, parallel(mesh)->train_step(model, o, &gpu_workspaces()), {}));
    const auto executor = make_gpu_executor(gpu, {}, {.graphs = graphs});
    std::vector<double> all = results(*kept.back(), model, *executor, "loss");
    CHECK(gpu->captures() == (graphs ? 1 : 0));
    const Timeline t = executor->take();
    for (const Peak& p : t.peaks) all.push_back(double(p.bytes));
    return all;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("an execution that fails after a capture is captured anew", "[cuda]") {
  PlanBuilder b{"twice"};
  const TensorId x = b.tensor("x", Shape{1, 64}, {.persistent = true}), y = b.tensor("y", Shape{1, 64}, {});
  const TensorId z = b.tensor("z", Shape{1, 64}, {.persistent = true});
  b.add("double", ScaleRows{.rows = 1, .cols = 64, .factor = 2}, {reads(x), writes(y)});
  b.add("keep", CopyRows{1, 64}, {reads(y), writes(z)});
  const Plan plan = b.take(&gpu_workspaces());
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.fails_at = "synchronize", .fails_after = 5});
  const auto executor = make_gpu_executor(gpu, {}, {.graphs = true});
  executor->prepare(plan);
  int errors = 0;
  for (int run = 0; run < 8; ++run) {
    executor->write(plan, x, RankId{0}, std::vector<double>(64, run));
    try {
      executor->execute(plan, {});
      CHECK(executor->read(plan, z, RankId{0})[63] == 2 * run);
    } catch (const DeviceError&) {
      ++errors;
    }
  }
  CHECK(errors == 1);
  CHECK(gpu->captures() == 2);
}

TEST_CASE("a graph whose calls have changed is captured anew", "[cuda]") {
  // One number more of keys at a time: from 256 keys on the cache is shared out, which is another kernel.
  const auto run = [](bool graphs, std::int64_t& captures) {
    PlanBuilder b{"decode"};
    AttentionShape s{.q = 1, .kv = Extent{0, Symbol::Context}, .qk_dim = 4, .v_dim = 4};
    const auto tensor = [&](const char* name, std::int64_t rows) {
      const TensorId t = b.tensor(name, Shape{1, rows, 1, 4}, {.persistent = true});
      b.port(name, t);
      return t;
    };
    const TensorId q = tensor("q", 1), k = tensor("k", 300), v = tensor("v", 300), o = tensor("o", 1);
    b.add("attention", AttentionForward{s, false}, {reads(q), reads(k), reads(v), writes(o)});
    const Plan plan = b.take(&gpu_workspaces());
    const auto gpu = std::make_shared<EmulatedGpu>();
    const auto executor = make_gpu_executor(gpu, {}, {.graphs = graphs});
    executor->prepare(plan);
    std::vector<double> numbers(1200);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(double(i));
    executor->write(plan, q, RankId{0}, std::vector<double>{1, 2, -1, 0.5});
    executor->write(plan, k, RankId{0}, numbers);
    executor->write(plan, v, RankId{0}, numbers);
    std::vector<std::vector<double>> all;
    for (const std::int64_t keys : {3, 4, 255, 256, 299, 3}) {
      Bindings bindings;
      bindings[Symbol::Context] = keys;
      executor->execute(plan, bindings);
      all.push_back(executor->read(plan, o, RankId{0}));
    }
    captures = gpu->captures();
    return all;
  };
  std::int64_t none = 0, some = 0;
  CHECK(run(true, some) == run(false, none));
  CHECK(none == 0);
  CHECK(some == 3);  // at first, when the keys are shared out, and when they are not any more
}

TEST_CASE("an error while a graph is captured leaves nothing behind", "[cuda]") {
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.fails_at = "launch", .fails_after = 20});
  Kept kept;
  const auto failing = make_gpu_executor(gpu, {}, {.graphs = true});
  CHECK_THROWS_WITH(losses(*failing, 1, kept), "launch: an error that the test asked for");
  const auto executor = make_gpu_executor(gpu, {}, {.graphs = true});
  CHECK(losses(*executor, 1, kept) == losses(1));
}

TEST_CASE("graphs are refused where places or records would not do", "[cuda]") {
  const auto gpu = std::make_shared<EmulatedGpu>();
  CHECK_THROWS_WITH(make_gpu_executor(gpu, {}, {.graphs = true, .activities = gpu->activities()}),
                    "a replayed graph leaves records of no op: CUDA graphs and records of CUPTI exclude each other\n"
                    "  hint: leave out --graphs or --activities");
  CHECK_THROWS_WITH(
      make_gpu_executor(gpu, {.allocator = {.allocator = AllocatorKind::PyTorch}}, {.graphs = true}),
      "a replayed graph needs the same places in each execution, which the pytorch allocator does not give\n"
      "  hint: use the allocator best-fit or buddy, or leave out --graphs");
  CHECK_THROWS_WITH(make_gpu_executor(gpu, {}, {.plain = true, .graphs = true}),
                    "a replayed graph needs the same places in each execution, which plain allocation does not give\n"
                    "  hint: leave out --graphs or --plain-allocation");
}

TEST_CASE("tensors that the device gives one by one hold the same numbers, and are given back", "[cuda]") {
  Kept kept;
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.seed = 4});
  {
    const auto executor = make_gpu_executor(gpu, {}, {.plain = true});
    CHECK(losses(*executor, 2, kept) == losses(2));
    const Timeline timeline = executor->take();
    CHECK(timeline.peaks.front().bytes > 0);
    CHECK(gpu->bytes_in_use(0) > 0);
    CHECK(gpu->bytes_in_use(0) < timeline.peaks.front().bytes);  // what steps take is given back after them
  }
  CHECK(gpu->bytes_in_use(0) == 0);
  const auto full = std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 1 << 14});
  {
    const auto executor = make_gpu_executor(full, {}, {.plain = true});
    CHECK_THROWS_WITH(losses(*executor, 1, kept), Catch::StartsWith("out of memory on rank 0"));
  }
  CHECK(full->bytes_in_use(0) == 0);
}
