// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <tuple>

#include "calibrate/campaign.hpp"
#include "calibrate/measure.hpp"
#include "calibrate/this_machine.hpp"
#include "hw_models/host_model.hpp"
#include "sim/app/calibration.hpp"
#include "sim/app/calibration_steps.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/app/validation.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;

namespace {

struct App {
  explicit App(const std::string& home = "/dev/null/none") : environment{{"ORRERY_HOME", home}} {}
  Interrupt interrupt;
  Console console{TerminalFacts{}};
  Environment environment;
  Wiring wiring{environment};
  AppContext context{console, interrupt, wiring, environment, {"orrery"}};
};

}  // namespace

TEST_CASE("no step of a calibration is a plan of the validation grid", "[app]") {
  App app;
  std::vector<Scenario> grid = validation_grid(app.context);
  CHECK(grid.size() >= 26);
  for (const char* other : {"parallel", "inference", "speculation"}) {
    const std::vector<Scenario> more = validation_grid(app.context, other);
    CHECK(more.size() >= 15);
    grid.insert(grid.end(), more.begin(), more.end());
  }
  for (const std::uint64_t seed : {1u, 2u, 3u})
    for (const Scenario& drawn : draw_scenarios(calibration_counts(false), seed, app.wiring.locations()))
      for (const Scenario& s : grid) CHECK(to_yaml(s.options.model) != to_yaml(drawn.options.model));
}

TEST_CASE("a drawn training and a drawn generation run as benches", "[app]") {
  App app;
  Random random{7};
  BenchRun train{step_bench(draw_training(random, StepSize::Small, app.wiring.locations()), app.wiring)};
  BenchRun decode{step_bench(draw_generation(random, StepSize::Small, app.wiring.locations()), app.wiring)};
  train.run(0, 1);
  decode.run(0, 1);
  CHECK(train.measured().seconds.median > 0);
  // A decode step attends to what the prompt and the steps before it left.
  CHECK(decode.bench().bindings[Symbol::Context] >= 64);
}

TEST_CASE("each attention of a long generation that is drawn reads 16 to 120 MB of keys and values", "[app]") {
  App app;
  Random random{7};
  const Bench bench = step_bench(draw_generation(random, StepSize::Long, app.wiring.locations()), app.wiring);
  double all = 0;
  for (const Op& op : bench.plan.ops)
    if (const auto* a = std::get_if<AttentionForward>(&bench.plan.work(op))) {
      const AttentionShape& s = a->shape;
      const double bytes = 4.0 * double(s.batch * s.kv.at(bench.bindings) * s.kv_heads * (s.qk_dim + s.v_dim));
      CHECK(bytes >= 16e6);
      all += bytes;
    }
  CHECK(all >= 16e6);
  CHECK(all <= 1.1 * 120e6);  // and the tokens behind the prompt
}

TEST_CASE("a drawn verification is a bench of the root and 4 to 63 drafts over what the prompt left", "[app]") {
  App app;
  Random random{7};
  const Bench bench = step_bench(draw_verification(random, app.wiring.locations()), app.wiring);
  std::vector<const AttentionForward*> attentions;
  for (const Op& op : bench.plan.ops)
    if (const auto* a = std::get_if<AttentionForward>(&bench.plan.work(op))) attentions.push_back(a);
  REQUIRE_FALSE(attentions.empty());
  for (const AttentionForward* a : attentions) {
    CHECK(a->shape.q >= 1 + 4);
    CHECK(a->shape.q <= 1 + 63);
    CHECK(a->shape.tree == a->shape.q);
    CHECK(a->shape.kv.at(bench.bindings) >= 64 + a->shape.q);
  }
  BenchRun run{bench};
  run.run(0, 1);
  CHECK(run.measured().seconds.median > 0);
}

TEST_CASE("ranks of a computer have the cores that were calibrated, fewer where the process may use fewer of them",
          "[app]") {
  const App plain;
  const Node document = read_yaml(plain.wiring.locations().parameter_folders().back() + "/host.yaml");
  Calibration calibration{.parameters = read_host_parameters(*document.find("host"))};
  const auto predicted = [&](const std::string& processor, std::int64_t cores, const std::string& cluster = "host") {
    const testing::TemporaryFolder home;
    std::filesystem::create_directories(home / "params");
    calibration.parameters.provenance.machine = processor;
    calibration.parameters.cores = cores;
    write_calibration(calibration, home / "params/host.yaml");
    const App app{home / ""};
    const Scenario s = load_scenario(home.file("s.yaml", "model: gpt2-tiny\ncluster: " + cluster +
                                                             "\nworkload: {train: {batch: 1, sequence: 16}}\n"),
                                     app.wiring.locations(), app.environment, {});
    const Machine m = app.wiring.machine(s.cluster);
    CHECK(m.cost->cluster().host.cores == std::int64_t(m.resources->capacity(Resource::CpuCores, 0)));
    const auto& host = dynamic_cast<const HostModel&>(m.cost->device());
    return std::tuple{*m.cost->cluster().host.cores, host.parameters().cores, m.doubt};
  };
  const std::int64_t here = detected_cores();
  const std::string mine = detected_processor();
  CHECK(predicted(mine, here) == std::tuple{here, here, ""});
  CHECK(predicted(mine, here + 3) == std::tuple{here, here, ""});  // as where a process is held to a few cores
  CHECK(predicted("another", here + 3) ==
        std::tuple{here + 3, here + 3,
                   "the parameters of this computer were measured on another processor (another): run `orrery "
                   "calibrate`"});
  if (here > 1)
    CHECK(predicted(mine, 1) == std::tuple{1, 1,
                                           fmt::format("the parameters of this computer were measured on 1 of its {} "
                                                       "cores: run `orrery calibrate`",
                                                       here)});
  // What a scenario says holds.
  CHECK(std::get<0>(predicted("another", 2, "{device: host, host: {cores: 5}}")) == 5);
}

TEST_CASE("a computer that has become slower or faster is calibrated again", "[app]") {
  App plain;
  const std::string shipped = plain.wiring.locations().parameter_folders().back() + "/host.yaml";
  const Node document = read_yaml(shipped);
  REQUIRE(document.find("host") != nullptr);
  Calibration calibration{.parameters = read_host_parameters(*document.find("host"))};
  HostParameters& parameters = calibration.parameters;
  parameters.provenance.machine = detected_processor();
  parameters.provenance.date = today();
  parameters.provenance.tool = tool_version();
  parameters.cores = detected_cores() + 1;
  DriftProbe probe{DriftProbe::Of::Core};
  for (int i = 0; i < 9; ++i) probe.sample();
  const auto reason_with = [&](double times) {
    const testing::TemporaryFolder home;
    std::filesystem::create_directories(home / "params");
    parameters.probe = Seconds{probe.seconds() * times};
    write_calibration(calibration, home / "params/host.yaml");
    const App app{home / ""};
    return reason_to_calibrate(app.context);
  };
  // What else runs on the computer makes a probe longer, but not ten times as long.
  CHECK_THAT(reason_with(0.02), Catch::Contains("times as long as when it was calibrated"));
  CHECK_THAT(reason_with(50), Catch::Contains("a fixed work takes 0.0"));
  // The file that comes with the program is of another computer, whatever its processor is called.
  CHECK(reason_to_calibrate(plain.context) == "this computer was never calibrated");
  if (detected_cores() > 1) {
    parameters.cores = 1;
    CHECK(reason_with(1) == fmt::format("the parameters are of 1 of the {} cores that may be used", detected_cores()));
  }
  parameters.provenance.machine = "another";
  CHECK(reason_with(1) == "the parameters are of another processor (another)");
}
