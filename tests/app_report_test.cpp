// SPDX-License-Identifier: Apache-2.0
#include "sim/app/report.hpp"

#include <fmt/format.h>

#include <cmath>

#include "sim/app/evaluation.hpp"
#include "sim/app/expectations.hpp"
#include "sim/app/instances.hpp"
#include "sim/app/npy.hpp"
#include "sim/app/resimulator.hpp"
#include "sim/app/what_if.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// Two executions of plan 0 and two of plan 1, 10, 20, 30 and 50 ps long, with 5 ps before the first op of each.
Timeline four_instances(TimelineSource source) {
  Timeline t;
  t.source = source;
  t.instance_plans = {0, 1, 0, 1};
  std::int64_t now = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::int64_t length = i < 2 ? 10 * (i + 1) : 10 * (2 * i - 1);
    t.spans.push_back({now + 5, now + 5 + length, OpId{std::size_t{0}}, RankId{std::size_t{0}}, i, 0});
    now += 5 + length;
    t.instance_ends_ps.push_back(now);
  }
  t.makespan_ps = now;
  return t;
}

}  // namespace

TEST_CASE("a measured execution starts with its first op, a predicted one where the last ended") {
  CHECK(instance_times(four_instances(TimelineSource::Measured))[1].start_ps == 20);
  CHECK(instance_times(four_instances(TimelineSource::Predicted))[1].start_ps == 15);
}

TEST_CASE("the last plan's executions but the first stand for a run") {
  const Timeline t = four_instances(TimelineSource::Measured);
  CHECK(steady_instances(t) == std::vector<std::uint32_t>{3});
  CHECK(mean_seconds(instance_times(t), {1, 3}) == Approx(35e-12));  // (20 + 50) / 2 ps
}

TEST_CASE("packed executions follow one another without gaps") {
  const Timeline t = packed(four_instances(TimelineSource::Measured), {1, 3});
  CHECK(t.makespan_ps == 70);
  CHECK(t.instance_ends_ps == std::vector<std::int64_t>{20, 70});
  REQUIRE(t.spans.size() == 2);
  CHECK(t.spans[1].start_ps == 20);
  CHECK(t.spans[1].instance == 1);
  CHECK(without_gaps(four_instances(TimelineSource::Measured)).makespan_ps == 110);
}

TEST_CASE("a NumPy file has a header whose data starts at a multiple of 64") {
  const std::vector<double> values{1.5, -2};
  const std::string bytes = npy_bytes(values, {1, 2}, NpyWidth::F64);
  CHECK(bytes.substr(0, 8) == std::string{"\x93NUMPY\x01\x00", 8});
  const std::size_t header = static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  CHECK((10 + header) % 64 == 0);
  CHECK_THAT(bytes.substr(10, header),
             Catch::StartsWith("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, ), }"));
  CHECK(bytes.size() == 10 + header + 16);
  CHECK(npy_bytes(values, {2}, NpyWidth::F32).size() == 128 + 8);
}

TEST_CASE("the loss of uniform logits is the logarithm of the number of classes") {
  const Logits logits{std::vector<double>(2 * 3 * 4, 0.7), {2, 3, 4}};
  const std::vector<std::int32_t> tokens{0, 1, 2, 3, 0, 1};
  CHECK(next_token_loss(logits, tokens) == Approx(std::log(4.0)).epsilon(1e-14));
  CHECK_THROWS_WITH(next_token_loss(logits, std::vector<std::int32_t>{1}),
                    Catch::StartsWith("there is no next token to predict"));
}

TEST_CASE("token ids are read from text and files") {
  CHECK(read_tokens("1, 2,3") == std::vector<std::int32_t>{1, 2, 3});
  const TemporaryFolder folder;
  CHECK(read_tokens(folder.file("ids", "[4 5]\n6\n")) == std::vector<std::int32_t>{4, 5, 6});
  CHECK_THROWS_WITH(read_tokens("1,x"), Catch::StartsWith("'1,x' holds no token ids"));
  CHECK_THROWS_WITH(read_tokens(""), Catch::StartsWith("'' holds no token ids"));
}

TEST_CASE("a what-if is a factor or a percentage") {
  CHECK(parse_change("link.bandwidth=x2").factor == 2);
  CHECK(parse_change("link.bandwidth=+10%").factor == Approx(1.1));
  CHECK(parse_change("link.bandwidth=-50%").factor == Approx(0.5));
  CHECK_THROWS_WITH(parse_change("link.bandwidth=2"),
                    Catch::StartsWith("'link.bandwidth=2' is not a change of a parameter"));
}

TEST_CASE("rates have four digits and no exponent") {
  CHECK(rate_text(129.64) == "129.6");
  CHECK(rate_text(9999.4) == "9999");
  CHECK(rate_text(9999.6) == "10,000");
  CHECK(rate_text(57056.3) == "57,060");
  CHECK(rate_text(1359649) == "1,360,000");
}

TEST_CASE("expectations are met within their tolerance, and errors have a place") {
  Scenario s;
  Report r;
  r.step = 0.011, r.ops = 7;
  s.options.expect["step_time"] = {Node::of("10 ms"), Node::of("10 %"), "by hand"};
  s.options.expect["ops"] = {Node::of("8"), Node{}, ""};
  const auto results = check_expectations(s, r);
  REQUIRE(results.size() == 2);
  CHECK_FALSE(results[0].holds);
  CHECK(results[0].text == "ops is 7, expected 8");
  CHECK(results[1].holds);  // 11 ms are within 10 % of 10 ms
  CHECK(results[1].text == "step_time is 11 ms, expected 10 ms within 1 ms (by hand)");
  r.model_flops = 8.53e9;
  s.options.expect = {{"model_flops", {Node::of("8.6e9"), Node::of("1 %"), ""}}};
  CHECK(check_expectations(s, r)[0].text == "model_flops is 8.53 GFLOP, expected 8.6 GFLOP within 86 MFLOP");
  s.options.expect = {{"ops", {Node::of("7"), Node::of("-1", {"s.yaml", 4, 9, {}}), ""}}};
  CHECK_THROWS_WITH(check_expectations(s, r), Catch::StartsWith("s.yaml:4:9: '-1' is no tolerance"));
  s.options.expect = {{"stepp", {Node::of("1", {"s.yaml", 3, 5, {}}), Node{}, ""}}};
  CHECK_THROWS_WITH(check_expectations(s, r), Catch::StartsWith("s.yaml:3:5: unknown metric 'stepp'"));
}

TEST_CASE("every scenario that comes with the program predicts what it expects", "[long]") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  for (const std::string& name : wiring.locations().scenario_names()) {
    DYNAMIC_SECTION(name) {
      const Scenario s = load_scenario(wiring.locations().find_scenario(name), wiring.locations(), environment, {});
      if (s.options.expect.empty()) continue;  // it takes long, and its page says what comes of it
      const Machine machine = wiring.machine(s.options, s.cluster);
      const Simulation simulation = simulate_scenario(s, machine, wiring, {}, [](std::size_t) {});
      if (device_kind(s.cluster) == DeviceKind::Host && machine.resources->capacity(Resource::CpuCores, 0) == 1 &&
          simulation.program->plans().front().mesh.size() > 1) {
        WARN(name + " not checked: its ranks would take turns on the only core of this process");
        continue;
      }
      const Report report = make_report({s, *simulation.program, simulation.recording, &machine});
      for (const ExpectationResult& e : check_expectations(s, report)) {
        INFO(e.text);
        CHECK(e.holds);
      }
    }
  }
}

TEST_CASE("the explorer simulates the software of a scenario and how it starts ops") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const TemporaryFolder folder;
  const std::string base =
      "model: gpt2-tiny\ncluster: dgx_h100\nworkload: {generate: {prompt: 8, tokens: 4, dtype: bf16}}\n";
  const auto explored = [&](const std::string& more) {
    const std::string path = folder.file("s.yaml", base + more);
    const Scenario s = load_scenario(path, wiring.locations(), environment, {});
    const Machine machine = wiring.machine(s.options, s.cluster);
    const Timeline by_command = simulate_scenario(s, machine, wiring, {}, [](std::size_t) {}).recording.timeline;
    const Timeline t = make_resimulator(wiring, environment)->simulate({path, {}, {}}, [] {}).timeline;
    CHECK(t.instance_ends_ps == by_command.instance_ends_ps);
    return t.instance_ends_ps.back();
  };
  const std::int64_t plain = explored("");
  CHECK(explored("launch: graph\n") < plain);
  CHECK(explored("profile: fastertransformer\n") != plain);
}

TEST_CASE("the explorer offers every option of a scenario, with the words that it may have") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const auto resimulator = make_resimulator(wiring, environment);
  const std::vector<gui::Knob> knobs = resimulator->knobs("llama3_70b_64");
  const auto find = [&](std::string_view name) -> const gui::Knob& {
    for (const gui::Knob& k : knobs)
      if (k.name == name) return k;
    FAIL("no knob " << name);
    return knobs.front();
  };
  CHECK(find("workload.train.microbatches").value == "8");
  CHECK(find("strategy[0].parallel.schedule").value == "1f1b");
  CHECK(find("strategy[0].parallel.sequence_parallel").choices == std::vector<std::string>{"true", "false"});
  CHECK(find("launch").choices == std::vector<std::string>{"eager", "graph"});
  for (const gui::Knob& k : knobs) {
    INFO(k.name);
    CHECK_FALSE(k.value.empty());
    CHECK(std::count_if(knobs.begin(), knobs.end(), [&](const gui::Knob& o) { return o.name == k.name; }) == 1);
    if (k.kind == gui::Knob::Kind::Factor) continue;
    // Said again as it is, it changes nothing: each path and value can be set.
    const Scenario s = load_scenario(wiring.locations().find_scenario("llama3_70b_64"), wiring.locations(), environment,
                                     {{k.name + "=" + k.value, "--set"}});
    CHECK(s.name == "llama3_70b_64");
  }
}

TEST_CASE("predicted memory of a generation counts what both plans keep") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const TemporaryFolder folder;
  const std::string path = folder.file("s.yaml", "model: llama-tiny\nworkload: {generate: {prompt: 8, tokens: 4}}\n");
  const Scenario s = load_scenario(path, wiring.locations(), environment, {});
  const Simulation predicted = simulate_scenario(s, wiring.machine(s.cluster), wiring, {}, [](std::size_t) {});
  const auto program = make_program(s, wiring, {.workspaces = &wiring.workspaces()});
  const auto executor = wiring.executor(DeviceKind::Host, s.cluster);
  const Recording measured = drive(*program, *executed(s, *program, *executor, wiring), [](std::size_t) {});
  const auto peak = [](const Timeline& t) { return t.peaks.at(0).bytes; };
  CHECK(peak(predicted.recording.timeline) == peak(measured.timeline));
}

/// Ranks of a host have no memory of their own: four with b bytes each fit into 4b, and not into one byte less.
TEST_CASE("ranks that share the memory of their node have to fit together") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const TemporaryFolder folder;
  const auto memory = [&](const std::string& strategy, std::int64_t bytes) {
    const std::string path = folder.file(
        "s.yaml",
        fmt::format(
            "model: gpt2-tiny\ncluster: {{device: host, devices_per_node: 8, host: {{cores: 2, memory: {} B}}}}\n"
            "strategy: [{{parallel: {{mesh: {}}}}}]\nworkload: {{train: {{batch: 8, microbatches: 2, sequence: "
            "16}}}}\n",
            bytes, strategy));
    const Scenario s = load_scenario(path, wiring.locations(), environment, {});
    const Machine machine = wiring.machine(s.cluster);
    const Simulation simulation = simulate_scenario(s, machine, wiring, 1, [](std::size_t) {});
    return make_report({s, *simulation.program, simulation.recording, &machine}).memory;
  };
  const MemoryReport replicas = memory("dp4", 1 << 30);
  CHECK(replicas.sharers == 4);
  CHECK(replicas.together == 4 * replicas.bytes);
  CHECK(memory("dp4", replicas.together).fits());
  CHECK_FALSE(memory("dp4", replicas.together - 1).fits());
  // Stages have different peaks: the first keeps the activations of one more microbatch.
  const MemoryReport stages = memory("pp2 dp2", 1 << 30);
  CHECK(stages.sharers == 4);
  CHECK(stages.together > 2 * stages.bytes);
  CHECK(stages.together < 4 * stages.bytes);
}
