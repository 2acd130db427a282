// SPDX-License-Identifier: Apache-2.0
// Tokens that are generated on one GPU, by one rank or several, and by a server: the logits of the host.
#include "runtime/cuda/gpu_executor.hpp"
#include "sim/program/serving/serving_program.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Way {
  const char *model, *strategy;
  std::int64_t microbatches = 1;
  std::vector<std::int64_t> lengths = {};
  std::int64_t chunk = 0;
};

/// Logits of all sequences after the prompt and after each token but the last, one behind the other.
std::vector<double> logits(const Model& model, const GenerateOptions& o, const Strategy& strategy, Executor& executor,
                           const WorkspaceModel& workspaces) {
  std::vector<std::int32_t> prompt;
  for (std::int64_t i = 0; i < o.batch * o.prompt; ++i) prompt.push_back(static_cast<std::int32_t>(i * 37 % 61));
  const auto program = generation_program(model, o, strategy.generation(model, o, &workspaces), prompt);
  for (const Plan& plan : program->plans()) {
    executor.prepare(plan);
    fill(executor, plan, model, 5, 0.05);
  }
  std::vector<double> all;
  while (const auto step = program->next()) {
    const Plan& plan = program->plans()[step->plan];
    put(executor, plan, step->inputs);
    executor.execute(plan, step->bindings);
    Outcome outcome;
    if (!step->outputs.empty()) {
      const std::vector<double> now = read_port(executor, plan, "logits");
      all.insert(all.end(), now.begin(), now.end());
      outcome.values["next_tokens"] = read_port(executor, plan, "next_tokens");
    }
    program->told(outcome);
  }
  return all;
}

std::vector<Request> requests() {
  std::vector<Request> all;
  for (const auto& [prompt, output] : {std::pair<std::int64_t, std::int64_t>{11, 4}, {3, 6}, {7, 2}}) {
    Request r{.id = static_cast<std::int64_t>(all.size()), .prompt = prompt, .output = output};
    for (std::int64_t i = 0; i < prompt; ++i) r.tokens.push_back(static_cast<std::int32_t>((7 * r.id + i * 37) % 61));
    all.push_back(std::move(r));
  }
  return all;
}

/// A server of a few sequences, whose keys and values lie in a pool of pages: prompts in chunks beside rows that
/// decode.
class Server {
 public:
  Server(const Model& model, const Strategy& strategy, Precision dtype, std::unique_ptr<Executor> executor,
         const WorkspaceModel& workspaces)
      : executor_{std::move(executor)} {
    constexpr std::int64_t kContext = 32;
    const KvBlocks::Sizes blocks{.device = 24, .host = 0, .tokens = 4};
    ServeOptions o;
    o.dtype = dtype;
    o.replica.scheduler = "sarathi";
    o.replica.max_sequences = 3;
    o.replica.max_tokens = 8;
    o.replica.block = 4;
    o.replica.prefix_sharing = false;
    program_ = serving_program(serving_plans(model, strategy, o, blocks, kContext, &workspaces), o, blocks, requests(),
                               [](const Sequence&) {});
    // The others move keys and values to pageable memory of the host, which kernels do not reach.
    executor_->prepare(program_->plans().front());
    fill(*executor_, program_->plans().front(), model, 5, 0.05);
  }
  /// Executes the next step; nothing when there is none.
  std::optional<Step> execute() {
    std::optional<Step> step = program_->next();
    if (!step) return step;
    plan_ = &program_->plans()[step->plan];
    put(*executor_, *plan_, step->inputs);
    executor_->execute(*plan_, step->bindings);
    return step;
  }
  std::vector<double> read(const std::string& port) { return read_port(*executor_, *plan_, port); }
  void told(const Outcome& outcome) { program_->told(outcome); }

 private:
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Program> program_;
  const Plan* plan_ = nullptr;
};

}  // namespace

TEST_CASE("a server with pages computes on a GPU what it computes on the host", "[cuda]") {
  for (const auto& [name, mesh] : {std::pair{"llama", ""}, {"qwen", ""}, {"deepseek", ""}, {"llama", "{mesh: tp2}"}}) {
    INFO(name << " " << mesh);
    const Model model = small_model(name);
    const auto strategy = *mesh ? parallel(mesh) : single();
    Server host{model, *strategy, Precision::F64, make_host_executor(), host_workspaces()};
    Server gpu{model, *strategy, Precision::F32, make_gpu_executor(gpu_under_test()), gpu_workspaces()};
    int steps = 0;
    while (const auto step = host.execute()) {
      REQUIRE(gpu.execute());
      // Rows of sequences that are not there hold anything.
      const std::vector<double> want = host.read("logits"), got = gpu.read("logits");
      std::vector<std::int32_t> starts;
      for (const PortValues& in : step->inputs)
        if (in.port == "starts") starts = in.indices;
      const std::size_t columns = want.size() / (starts.size() - 1);
      for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
        if (starts[i + 1] == starts[i]) continue;
        const auto row = [&](const std::vector<double>& all) {
          const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * columns);
          return std::vector<double>(first, first + static_cast<std::ptrdiff_t>(columns));
        };
        CHECK(relative_distance(row(got), row(want)) < 1e-5);
      }
      const Outcome outcome{{{"next_tokens", host.read("next_tokens")}}};
      host.told(outcome);
      gpu.told(outcome);
      ++steps;
    }
    CHECK(!gpu.execute());
    CHECK(steps > 5);
  }
}

TEST_CASE("tokens are generated on a GPU as on the host, by one rank or several", "[cuda]") {
  const Way ways[] = {{"gpt2", ""},
                      {"llama", "", 1, {3, 5}},
                      {"llama", "", 1, {}, 2},
                      {"deepseek", ""},
                      {"llama", "{mesh: tp2}"},
                      {"gpt2", "{mesh: pp2}", 2},
                      {"mixtral", "{mesh: ep2}"}};
  for (const Way& w : ways) {
    INFO(w.model << " " << w.strategy << " " << w.lengths.size() << " " << w.chunk);
    const Model model = small_model(w.model);
    GenerateOptions o;
    o.batch = 2;
    o.prompt = 5;
    o.tokens = 3;
    o.microbatches = w.microbatches;
    o.lengths = w.lengths;
    o.chunk = w.chunk;
    o.dtype = Precision::F64;
    const auto strategy = *w.strategy ? parallel(w.strategy) : single();
    const auto host = make_host_executor();
    const std::vector<double> want = logits(model, o, *strategy, *host, host_workspaces());
    o.dtype = Precision::F32;
    const auto device = make_gpu_executor(gpu_under_test());
    const std::vector<double> got = logits(model, o, *strategy, *device, gpu_workspaces());
    REQUIRE(!want.empty());
    CHECK(relative_distance(got, want) < 1e-5);
  }
}
