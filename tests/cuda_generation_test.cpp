// SPDX-License-Identifier: Apache-2.0
// Tokens that are generated on one GPU, by one rank or several: the logits of the host.
#include "runtime/cuda/gpu_executor.hpp"
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

}  // namespace

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
