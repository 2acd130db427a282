// SPDX-License-Identifier: Apache-2.0
// A server on the host runtime: whatever is chunked, shared, thrown away or swapped, each request gets the tokens that
// it would get alone.
#include <catch2/catch.hpp>

#include <map>

#include "tests/serving_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

using Sizes = std::vector<std::pair<std::int64_t, std::int64_t>>;  // prompt and answer

std::vector<Request> requests(const Model& model, std::int64_t shared,
                              const Sizes& sizes = {{23, 9}, {5, 14}, {31, 3}, {12, 11}, {18, 1}, {9, 12}}) {
  const std::int64_t vocabulary = vocabulary_of(model);
  Random random{17};
  std::vector<std::int32_t> common;
  for (std::int64_t i = 0; i < shared; ++i)
    common.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
  std::vector<Request> all;
  for (const auto& [prompt, output] : sizes) {
    Request r{.id = static_cast<std::int64_t>(all.size()), .prompt = prompt + shared, .output = output};
    r.tokens = common;
    while (static_cast<std::int64_t>(r.tokens.size()) < r.prompt)
      r.tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
    all.push_back(std::move(r));
  }
  return all;
}

/// The tokens that a request gets alone.
std::vector<std::int32_t> alone(const Model& model, const Request& r) {
  std::vector<std::int32_t> tokens = r.tokens;
  generate_alone(model, r, [&](Executor& executor, const Plan& plan) {
    tokens.push_back(static_cast<std::int32_t>(read_port(executor, plan, "next_tokens")[0]));
  });
  return tokens;
}

struct Served {
  std::map<std::int64_t, std::vector<std::int32_t>> tokens;
  std::int64_t preemptions = 0, shared = 0;
  std::map<std::uint32_t, int> steps;  // by plan
};

Served serve_all(const Model& model, const ServeOptions& o, const KvBlocks::Sizes& blocks, std::vector<Request> all,
                 const std::string& mesh = "") {
  const std::unique_ptr<Strategy> strategy = strategy_of_mesh(mesh);
  Served served;
  auto program = serving_program(serving_plans(model, *strategy, o, blocks, kServedContext, &host_workspaces()), o,
                                 blocks, std::move(all), [&](const Sequence& s) {
                                   served.tokens[s.request.id] = s.tokens;
                                   served.preemptions += s.preemptions;
                                   served.shared += s.shared;
                                 });
  const auto executor = executor_of(program->plans(), model);
  while (auto step = program->next()) {
    const Plan& plan = program->plans()[step->plan];
    put(*executor, plan, step->inputs);
    executor->execute(plan, step->bindings);
    Outcome outcome;
    outcome.seconds = 1e-3;
    for (const std::string& port : step->outputs) outcome.values[port] = read_port(*executor, plan, port);
    ++served.steps[step->plan];
    program->told(outcome);
  }
  return served;
}

void check_equal(const Model& model, const std::vector<Request>& all, const Served& served) {
  REQUIRE(served.tokens.size() == all.size());
  for (const Request& r : all) {
    INFO("request " << r.id);
    CHECK(served.tokens.at(r.id) == alone(model, r));
  }
}

}  // namespace

TEST_CASE("chunked prompts beside sequences that decode give each request its own tokens", "[serving]") {
  const auto* name = GENERATE("llama-tiny", "gpt2-tiny", "deepseek-tiny", "qwen3-moe-tiny");
  const Model model = load_model(shipped_model(name));
  INFO(name);
  const auto all = requests(model, 0);
  ServeOptions o = serve_options("sarathi");
  const Served served = serve_all(model, o, {.device = 64, .host = 0, .tokens = 4}, all);
  check_equal(model, all, served);
  CHECK(served.steps.at(1) > 0);  // steps with prompts
}

TEST_CASE("a server whose matrices are split over two ranks gives the same tokens", "[serving]") {
  const Model model = load_model(shipped_model("llama-tiny"));
  const auto all = requests(model, 0);
  check_equal(model, all,
              serve_all(model, serve_options("vllm_v1"), {.device = 64, .host = 0, .tokens = 4}, all, "tp2"));
}

TEST_CASE("requests that sglang takes back go on where they were", "[serving]") {
  const Model model = load_model(shipped_model("llama-tiny"));
  // The third is let in when the first is gone, since next to nothing is expected of the second; 31 tokens of each are
  // 16 blocks in the end.
  const auto all = requests(model, 0, {{4, 1}, {8, 24}, {8, 24}});
  ServeOptions o = serve_options(GENERATE("sglang", "sglang_mixed"));
  o.replica.conservativeness = 0.01;
  const Served served = serve_all(model, o, {.device = 15, .host = 0, .tokens = 4}, all);
  CHECK(served.preemptions > 0);
  check_equal(model, all, served);
}

TEST_CASE("sequences that make room and come back go on where they were", "[serving]") {
  const Model model = load_model(shipped_model("llama-tiny"));
  const auto all = requests(model, 0);
  ServeOptions o = serve_options("vllm_v0");
  o.replica.max_tokens = 40;
  o.replica.preemption = GENERATE(Preemption::Recompute, Preemption::Swap);
  const Served served = serve_all(model, o, {.device = 16, .host = 32, .tokens = 4}, all);
  CHECK(served.preemptions > 0);
  if (o.replica.preemption == Preemption::Swap) CHECK(served.steps.at(3) > 0);  // copies back from the host
  check_equal(model, all, served);
}

TEST_CASE("prompts that begin alike share blocks and keep their tokens", "[serving]") {
  const Model model = load_model(shipped_model("llama-tiny"));
  const auto all = requests(model, 18);
  ServeOptions o = serve_options("vllm_v1");
  o.replica.prefix_sharing = true;
  const Served served = serve_all(model, o, {.device = 64, .host = 0, .tokens = 4}, all);
  CHECK(served.shared >= 2 * 16);
  check_equal(model, all, served);
}

TEST_CASE("sub-layers side by side have keys and values of their own in the pool", "[serving]") {
  const Model model = model_from_config(
      parse_yaml("{model_type: kraken, n_ways: 2, n_embd: 12, n_layer: 2, n_head: 4, n_positions: 64, vocab_size: 29}",
                 "kraken"),
      "kraken");
  const auto all = requests(model, 0);
  check_equal(model, all, serve_all(model, serve_options("vllm_v1"), {.device = 64, .host = 0, .tokens = 4}, all));
}

TEST_CASE("what cannot serve is refused with a way out", "[serving]") {
  const Model model = load_model(shipped_model("llama-tiny"));
  const auto step = [&](std::string_view strategy, const std::string& options) {
    return user_error(
        [&] { find_strategy(strategy).make(parse_yaml(options, "strategy"))->serving_step(model, {}, nullptr); });
  };
  CHECK_THAT(step("parallel", "{mesh: pp2}"), Catch::Contains("a server splits matrices over tp only"));
  CHECK_THAT(step("parallel", "{mesh: tp2, data_attention: true}"), Catch::Contains("data_attention splits samples"));
  CHECK_THAT(step("energonai", "{mesh: tp2}"), Catch::Contains("the strategy `energonai` does not serve"));
}

TEST_CASE("a step that is only timed does the same work and does not tell where parameters lie", "[serving]") {
  const Model model = load_model(shipped_model("qwen3-moe-tiny"));
  const auto strategy = find_strategy("parallel").make(parse_yaml("{mesh: tp2}", "strategy"));
  const auto lowered = [&](bool placed) {
    return strategy->serving_step(model, {.rows = 12, .sequences = 4, .placed = placed}, nullptr);
  };
  const Plan whole = lowered(true), timed = lowered(false);
  CHECK(whole.placements.size() == model.parameters.size());
  CHECK(timed.placements.empty());
  CHECK(timed.tensors.size() < whole.tensors.size());  // experts have no views of their own
  CHECK(timed.works == whole.works);
  REQUIRE(timed.ops.size() == whole.ops.size());
  for (std::size_t i = 0; i < timed.ops.size(); ++i) CHECK(timed.ops[i].work == whole.ops[i].work);
}
