// SPDX-License-Identifier: Apache-2.0
// Serving as predicted: times of steps against whole executions, traffic against what follows from it by hand.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "hw_models/parameters.hpp"
#include "sim/app/serving/layer_period.hpp"
#include "sim/app/serving/serve_report.hpp"
#include "sim/app/serving/serve_search.hpp"
#include "sim/app/serving/served_types.hpp"
#include "sim/model/load.hpp"
#include "sim/timeline/compressed.hpp"
#include "sim/timeline/foreign_readers.hpp"
#include "tests/app_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

const Wiring& wiring() {
  static const Wiring w{Environment{}};
  return w;
}

struct Served {
  Model model;
  std::unique_ptr<Strategy> strategy;
  ServeOptions options;
  SoftwareProfile profile;

  Served(const std::string& name, const std::string& mesh)
      : model{load_model(wiring().locations().find_model(name))},
        strategy{find_strategy("parallel").make(parse_yaml("{mesh: " + mesh + "}", "test"))} {
    options.context = 4096;
    profile.graph_rows = 512;
  }
  Deployment deployment() const {
    return {.model = model,
            .strategy = *strategy,
            .wiring = wiring(),
            .cluster = load_cluster(wiring().locations().find_cluster("dgx_h100")),
            .profile = profile,
            .options = options};
  }
};

BatchShape shape_of(std::int64_t decodes, std::int64_t keys, std::int64_t prompt_rows) {
  BatchShape s;
  for (std::int64_t i = 0; i < decodes; ++i) s.add(keys - 1, 1, true);
  if (prompt_rows > 0) s.add(64, prompt_rows, false);
  s.emitting = decodes;
  return s;
}

/// Steps that all take the same time.
class FixedTimes final : public StepTimes {
 public:
  explicit FixedTimes(double reading, double answering = 0) : reading_{reading}, answering_{answering} {}
  double step(const BatchShape&) override { return 0.01; }
  double front(std::int64_t) override { return reading_; }
  double swap(std::int64_t) override { return 0; }
  double hand_over(std::int64_t) override { return 0.5; }
  double answer() override { return answering_; }

 private:
  double reading_;    // of a request, before the scheduler knows it
  double answering_;  // of a token, on its way to its client
};

ServingResult served(const ServeOptions& o, double reading = 0, double answering = 0) {
  FixedTimes times{reading, answering};
  const auto source = make_requests(o.traffic, 0);
  return serve({.options = o, .blocks = {.device = 4096, .host = 0, .tokens = 16}, .source = *source, .times = times});
}

}  // namespace

TEST_CASE("remembered times of steps equal executions of all layers to the picosecond", "[serving]") {
  const auto [model, mesh] =
      GENERATE(table<std::string, std::string>({{"llama-3-8b", "tp1"},
                                                {"llama-3-8b", "tp4"},
                                                {"deepseek-v2-lite", "tp1"}}));  // which has a dense layer in front
  Served s{model, mesh};
  PlanTimes times{s.deployment()};
  for (const auto& [decodes, keys, rows] :
       {std::tuple{1, 100, 0}, {8, 700, 0}, {64, 1000, 0}, {64, 2000, 0}, {32, 900, 224}, {0, 0, 256}}) {
    const BatchShape shape = shape_of(decodes, keys, rows);
    INFO(model << ", " << mesh << ": " << decodes << " with " << keys << " keys, " << rows << " rows of a prompt");
    CHECK(std::llround(times.step(shape) * 1e12) == times.executed(shape));
    CHECK(std::llround(times.step(shape) * 1e12) == times.executed(shape));  // again: from memory
  }
}

TEST_CASE("the first layers of a model leave the parameters of the others behind", "[serving]") {
  const std::string name = GENERATE("deepseek-v3", "llama-3-8b", "gpt2");
  INFO(name);
  const Model whole = load_model(wiring().locations().find_model(name)), few = first_layers(whole, 2);
  std::size_t expected = 0;
  for (const Parameter& p : whole.parameters) expected += p.layer < 2;
  REQUIRE(few.parameters.size() == expected);
  CHECK(few.parameters.size() < whole.parameters.size());
  const auto& t = std::get<Transformer>(few.network);
  const auto& all = std::get<Transformer>(whole.network);
  CHECK(t.decoder.size() == 2);
  CHECK(few[t.output.weight].name == whole[all.output.weight].name);
  CHECK(few[t.decoder_norm->weight].name == whole[all.decoder_norm->weight].name);
  CHECK(few[t.decoder[1].ffn_norm.weight].name == whole[all.decoder[1].ffn_norm.weight].name);
}

TEST_CASE("every other layer with a window: its pool holds twice the tokens, and long contexts cost half",
          "[serving]") {
  Served s{"llama-3-8b", "tp1"};
  const ReplicaMemory plain = PlanTimes{s.deployment()}.memory(s.options.replica);
  const double short_step = PlanTimes{s.deployment()}.step(shape_of(64, 128, 0)),
               long_step = PlanTimes{s.deployment()}.step(shape_of(64, 4000, 0));
  auto& layers = std::get<Transformer>(s.model.network).decoder;
  for (std::size_t i = 0; i < layers.size(); i += 2) layers[i].attention.window = 128;
  PlanTimes times{s.deployment()};
  const ReplicaMemory m = times.memory(s.options.replica);
  CHECK(double(m.blocks) == Approx(2.0 * double(plain.blocks)).margin(1));
  // 4096 tokens are 256 blocks of half of the layers, and 9 of the other half.
  CHECK(KvBlocks{m.pool_of(s.options.replica)}.blocks_for(4096) == 256 + 9);
  CHECK(m.sequences(4096, 16) == Approx(double(m.blocks * 16) / (4096 + 128)));
  CHECK(times.step(shape_of(64, 128, 0)) == Approx(short_step).epsilon(1e-9));
  CHECK(times.step(shape_of(64, 4000, 0)) == Approx((short_step + long_step) / 2).epsilon(1e-9));
  const BatchShape mixed = shape_of(32, 900, 224);
  CHECK(std::llround(times.step(mixed) * 1e12) == times.executed(mixed));
}

TEST_CASE("steps of a small model without graphs wait for the host, with graphs they do not", "[serving]") {
  Served s{"llama-tiny", "tp1"};
  s.options.context = 256;
  const BatchShape shape = shape_of(1, 32, 0);
  const double graphs = PlanTimes{s.deployment()}.step(shape);
  s.profile.graph_rows = 0;
  PlanTimes eager{s.deployment()};
  const Plan plan = s.strategy->serving_step(s.model, {}, nullptr);
  const Machine machine = wiring().machine(s.deployment().cluster);
  const double enqueue = machine.cost->launch(plan.works.front(), RankId{0}).enqueue.base();
  CHECK(eager.step(shape) > 0.9 * double(plan.ops.size() - 1) * enqueue);  // one launch after another
  CHECK(graphs < 0.9 * eager.step(shape));
  CHECK(std::llround(eager.step(shape) * 1e12) == eager.executed(shape));
}

TEST_CASE("a step of experts without a graph takes what the host needs for its layers", "[serving]") {
  Served s{"qwen3-moe-tiny", "tp1"};
  s.options.context = 256;
  s.profile.host_step = Seconds{0}, s.profile.host_sequence = Seconds{0};
  s.profile.host_experts = Seconds{0.5};
  const BatchShape shape = shape_of(1, 32, 0);
  CHECK(PlanTimes{s.deployment()}.step(shape) < 0.1);  // a graph
  s.profile.graph_rows = 0;
  const auto& layers = std::get<Transformer>(s.model.network).decoder;
  const auto experts = std::count_if(layers.begin(), layers.end(),
                                     [](const auto& layer) { return std::holds_alternative<MoE>(layer.ffn); });
  CHECK(PlanTimes{s.deployment()}.step(shape) == Approx(0.5 * double(experts)));
  Served dense{"llama-tiny", "tp1"};
  dense.options.context = 256;
  dense.profile.graph_rows = 0;
  const double before = PlanTimes{dense.deployment()}.step(shape);
  dense.profile.host_experts = Seconds{0.5};
  CHECK(PlanTimes{dense.deployment()}.step(shape) == before);
}

TEST_CASE("a replica's pool is what weights and activations leave", "[serving]") {
  Served s{"llama-3-8b", "tp1"};
  PlanTimes times{s.deployment()};
  const ReplicaMemory m = times.memory(s.options.replica);
  CHECK(m.weights.base() == Approx(2.0 * double(s.model.parameter_count())).epsilon(1e-6));
  CHECK(m.weights + m.activations + m.pool <= m.capacity);
  // less than a block
  CHECK((m.capacity - s.options.replica.reserved - m.weights - m.activations - m.pool).base() < 16 * 131072);
  ReplicaOptions aside = s.options.replica;
  aside.memory_of = MemoryOf::WeightsAndPool;
  CHECK((m.capacity - aside.memory * aside.reserved - m.weights - times.memory(aside).pool).base() < 16 * 131072);
  ReplicaOptions free = s.options.replica;
  free.memory_of = MemoryOf::Free;
  const Bytes room = m.capacity / s.options.replica.memory - free.reserved - m.weights - m.activations;
  CHECK((free.memory * room - times.memory(free).pool).base() == Approx(0).margin(16 * 131072));
  s.options.weights = "fp8";
  CHECK(PlanTimes{s.deployment()}.memory(s.options.replica).weights < 0.6 * m.weights);
  s.options.replica.kv_type = KvType::F8;
  CHECK(PlanTimes{s.deployment()}.memory(s.options.replica).blocks > 2 * m.blocks);
}

TEST_CASE("experts in 4 bits meet rows of 8 where the device multiplies 4 bits faster than 16", "[serving]") {
  ServeOptions o;
  o.weights = "fp4_experts";
  const auto types = [&](const std::string& device) {
    return weight_types(o, *find_device(device, wiring().locations().parameter_folders()));
  };
  CHECK(types("b200").rows_of_experts_in_8_bits);
  CHECK_FALSE(types("h100_sxm").rows_of_experts_in_8_bits);  // 4 bits are unpacked there
  CHECK_FALSE(types("a100_80g").rows_of_experts_in_8_bits);
  Plan plan;
  plan.works = {GroupedGemm{.rows = 64, .n = 128, .k = 128, .groups = 8, .dtype = DType::BF16}};
  plan.ops = {Op{.work = WorkId{0}, .layer = 0}};
  narrow(plan, types("b200"), DType::BF16);
  const auto& g = std::get<GroupedGemm>(plan.works[0]);
  CHECK(g.weights == Quantised::I4);
  CHECK(g.arithmetic() == DType::F8E4M3);
}

TEST_CASE("times of requests follow from those of steps", "[serving]") {
  // One request at a time: the prompt takes one step, each token one.
  ServeOptions o;
  o.traffic = {.arrival = Arrival::Even, .rate = 1, .prompt = {.mean = 100}, .output = {.mean = 11}, .requests = 20};
  ServingResult r = served(o);
  CHECK(r.answered == 20);
  CHECK(r.ttft.mean() == Approx(0.01));
  CHECK(r.tpot.mean() == Approx(0.01));
  CHECK(r.e2e.mean() == Approx(0.11));
  CHECK(r.seconds == Approx(19.11));
  CHECK(r.steps == 20 * 11);
  CHECK(r.busy == Approx(20 * 0.11 / 19.11));
  CHECK_FALSE(r.is_overloaded());
  // Two clients on one replica: requests in pairs, 10 of them one after another.
  o.traffic.arrival = Arrival::AllAtOnce;
  o.traffic.clients = 2;
  r = served(o);
  CHECK(r.seconds == Approx(10 * 0.11));
  CHECK(r.batch.mean() > 1.9);
  // The next pair is read before the scheduler knows it, while nothing runs.
  r = served(o, 0.02);
  CHECK(r.seconds == Approx(10 * 0.11 + 9 * 0.02));
  CHECK(r.ttft.mean() == Approx(0.01 + 0.02));
  // Prompts elsewhere: half a second for keys and values between the first token and the second.
  o.traffic = {.arrival = Arrival::Even, .rate = 1, .prompt = {.mean = 100}, .output = {.mean = 11}, .requests = 5};
  o.prefill_replicas = 1;
  r = served(o);
  CHECK(r.ttft.mean() == Approx(0.01));
  CHECK(r.e2e.mean() == Approx(0.11 + 0.5));
}

TEST_CASE("tokens reach their clients one after another", "[serving]") {
  // Four clients at once, ten requests each, 11 tokens in steps of 10 ms; 5 ms a token are 20 ms a step, so that the
  // process that hands them out sets the pace: 4·11·10 tokens behind the first step.
  ServeOptions o;
  o.traffic = {.arrival = Arrival::AllAtOnce, .prompt = {.mean = 100}, .output = {.mean = 11}, .requests = 40};
  o.traffic.clients = 4;
  o.replica.max_tokens = 4096;
  const ServingResult fast = served(o);
  CHECK(fast.seconds == Approx(10 * 0.11));
  CHECK(served(o, 0, 0.001).seconds == Approx(10 * 0.11 + 0.004).epsilon(0.1));
  const ServingResult slow = served(o, 0, 0.005);
  CHECK(slow.seconds == Approx(4 * 11 * 10 * 0.005).epsilon(0.1));
  // One request: its tokens do not meet others, each comes 5 ms later.
  o.traffic.requests = o.traffic.clients = 1;
  const ServingResult one = served(o, 0, 0.005);
  CHECK(one.ttft.mean() == Approx(0.015));
  CHECK(one.tpot.mean() == Approx(0.01));
  // Two of them: 20 ms a step would be too slow for 10; the last of 2·11 tokens comes 22·8 ms behind the first step.
  o.traffic.requests = o.traffic.clients = 2;
  const ServingResult two = served(o, 0, 0.008);
  CHECK(two.e2e.most() == Approx(0.01 + 22 * 0.008));
  CHECK(two.seconds == Approx(0.01 + 22 * 0.008));
}

TEST_CASE("overload ends with a report", "[serving]") {
  ServeOptions o;
  o.traffic = {.rate = 1000, .prompt = {.mean = 100}, .output = {.mean = 50}, .requests = 3000};
  o.replica.max_sequences = 4;
  ServingResult r = served(o);
  CHECK(r.is_overloaded());
  CHECK(r.answered == 3000);
  o.max_waiting = 10;
  r = served(o);
  CHECK(r.is_overloaded());
  CHECK(r.refused > 0);
  CHECK(r.answered + r.refused == 3000);
  CHECK(r.most_waiting <= 10);
}

TEST_CASE("replicas share the load, and groups find their blocks where they were", "[serving]") {
  ServeOptions o;
  o.traffic = {
      .rate = 40, .prompt = {.mean = 400}, .output = {.mean = 20}, .requests = 400, .groups = 8, .shared = 320};
  o.replicas = 4;
  o.routing = RequestRouting::RoundRobin;
  const std::int64_t spread = served(o).shared_tokens;
  o.routing = RequestRouting::PrefixAware;
  const ServingResult aware = served(o);
  CHECK(aware.answered == 400);
  CHECK(aware.shared_tokens > spread);
}

TEST_CASE("the command reports times, and refuses what cannot be served", "[serving]") {
  const testing::TemporaryFolder folder;
  const std::string head =
      "model: llama-3-8b\ncluster: dgx_h100\nstrategy: [parallel: {mesh: tp1}]\nprofile: vllm\nworkload:\n  serve: ";
  const auto scenario = [&](const std::string& serve) { return folder.file("s.yaml", head + serve + "\n"); };
  const auto ok = testing::orrery({"serve", scenario("{traffic: {requests: 20}, context: 4096}"), "--json"});
  CHECK(ok.code == 0);
  for (const char* key :
       {"\"ttft\"", "\"tpot\"", "\"itl\"", "\"e2e\"", "\"goodput\"", "\"kv\"", "\"preemptions\"", "\"low\""})
    CHECK(ok.out.find(key) != std::string::npos);
  CHECK(ok.out.find("\"answered\": 20") != std::string::npos);
  const auto plain = testing::orrery({"serve", scenario("{traffic: {requests: 20}}"), "--no-interval"}).out;
  CHECK_THAT(plain, Catch::Contains("e2e to the last token") && !Catch::Contains("interval"));
  folder.file("t.csv", "arrival_s,input_tokens,output_tokens\n0,10,5\n1,10,5\n2,10,5\n");
  const auto traced = [&](const std::string& most) {
    return testing::orrery({"serve", scenario("{traffic: {trace: t.csv, requests: " + most + "}}")}).out;
  };
  CHECK_THAT(traced("2"), Catch::Contains("2 answered of 2") && Catch::Contains("the trace goes on"));
  for (const char* all : {"3", "0"}) CHECK_THAT(traced(all), !Catch::Contains("the trace goes on"));
  const auto refused = [&](const std::string& serve, const std::string& text) {
    const auto r = testing::orrery({"serve", scenario(serve)});
    INFO(r.err);
    CHECK(r.code == 2);
    CHECK(r.err.find(text) != std::string::npos);
  };
  refused("{replica: {scheduler: orka}}", "did you mean 'orca'?");
  refused("{context: 100000}", "a context of 100000 tokens, but llama-3-8b knows 8192 positions");
  refused("{replicas: 9}", "9 replicas of 1 rank each, but the cluster has 8 devices");
  refused("{weights: fp9}", "unknown type of weights 'fp9'");
  refused("{traffic: {trace: none.csv}}", "cannot find the trace 'none.csv'");
  CHECK(testing::orrery({"simulate", scenario("{}")}).err.find("use `orrery serve`") != std::string::npos);
  CHECK(testing::orrery({"serve", "llama_tiny_generate"}).err.find("not `serve`") != std::string::npos);
  CHECK(testing::orrery({"list", "schedulers"}).out.find("sarathi") != std::string::npos);
  const auto large = testing::orrery({"serve", "--model", "llama-3-70b", "--fail", scenario("{}")});
  CHECK(large.code == 1);  // 141 GB of weights on one device
  CHECK(large.out.find("does not fit") != std::string::npos);
}

TEST_CASE("the steps of replicas are written one after the other, with what they compute", "[serving][trace]") {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "steps.json";
  const std::string served =
      "{replicas: 2, context: 4096, traffic: {rate: 40, prompt: {mean: 300}, output: {mean: 20}, requests: 50}}";
  const auto r =
      testing::orrery({"serve",
                       folder.file("scenario.yaml",
                                   "model: llama-3-8b\ncluster: dgx_h100\nstrategy: [parallel: {mesh: tp1}]\n"
                                   "workload: {serve: " +
                                       served + "}\n"),
                       "--json", "--no-interval", "--trace", file});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const auto report = nlohmann::json::parse(r.out);
  const ForeignTrace trace = parse_foreign(read_plain(file), file);
  CHECK(repairs_text(trace).empty());
  CHECK(trace.processes.size() == 2);
  CHECK(trace.events.size() == report.at("steps").get<std::size_t>());
  std::int64_t prompts = 0, answers = 0, busy = 0;
  std::map<std::uint32_t, std::int64_t> end;
  for (const ForeignEvent& e : trace.events) {
    CHECK(e.start_ps >= end[e.thread]);
    end[e.thread] = e.end_ps;
    busy += e.end_ps - e.start_ps;
    prompts += std::stoll(std::string{trace.argument(e, "prompts")});
    answers += std::stoll(std::string{trace.argument(e, "answers")});
  }
  CHECK(prompts >= 50);             // more where prompts are cut into chunks
  CHECK(answers == 50 * (20 - 1));  // the first token of each comes with its prompt
  CHECK(double(busy) * 1e-12 ==
        Approx(2 * report.at("busy").get<double>() * report.at("seconds").get<double>()).epsilon(1e-4));
  // All is given back at the end.
  CHECK(trace.counters.size() == 2 * 5);
  for (const ForeignCounter& c : trace.counters) CHECK(c.samples.back().second == 0);

  const auto wrong = testing::orrery({"serve", "serve_llama3_8b", "--trace", folder / "steps.orrery"});
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("let the name end in .json") != std::string::npos);
}

TEST_CASE("the search for a deployment needs more GPUs for more requests", "[serving]") {
  const Model model = load_model(wiring().locations().find_model("llama-3-8b"));
  ServeOptions o;
  o.slo = {.ttft = Seconds{0.5}, .tpot = Seconds{0.03}};
  o.traffic = {.prompt = {.mean = 512}, .output = {.mean = 64}, .requests = 120};
  o.context = 4096;
  o.bucket = 64;
  const auto best = [&](double rate) {
    o.traffic.rate = rate;
    const SoftwareProfile profile;
    const ServeSearchRequest request{.model = model,
                                     .wiring = wiring(),
                                     .cluster = load_cluster(wiring().locations().find_cluster("dgx_h100")),
                                     .profile = profile,
                                     .options = o};
    return search_serving(request).candidates.front();
  };
  const ServeCandidate few = best(2), many = best(150);
  CHECK(few.meets);
  CHECK(few.gpus() == 1);
  CHECK(many.gpus() > 1);
}

TEST_CASE("a deployment is told with its replicas and what they are for", "[serving]") {
  const auto found = [](const char* prompt, const char* slo) {
    return testing::orrery({"serve-plan", "llama-3-8b", "--cluster", "dgx_h100", "--requests", "20", "--output", "64",
                            "--rate", "4", "--prompt", prompt, "--slo", slo});
  };
  CHECK_THAT(found("512", "ttft=2s").out, Catch::StartsWith("1 GPU is enough: 1 replica of 1 by "));
  // Steps with long prompts take longer than a token may: replicas that decode read none.
  CHECK_THAT(found("6000", "ttft=2s,tpot=9ms").out,
             Catch::StartsWith("2 GPUs are enough: 1 replica of 1 for prompts and 1 replica of 1 for answers by "));
}
