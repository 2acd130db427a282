// SPDX-License-Identifier: Apache-2.0
// `orrery campaign`: a predicted step, so many times, with failures and checkpoints.
#include <nlohmann/json.hpp>

#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

CommandResult of_tiny(std::vector<std::string> more) {
  std::vector<std::string> all{"campaign",
                               "--model",
                               "gpt2-tiny",
                               "--cluster",
                               "dgx_h100",
                               "--set",
                               "workload={train: {batch: 8, sequence: 64}}",
                               "--set",
                               "strategy=[{ddp: {mesh: dp8}}]"};
  all.insert(all.end(), more.begin(), more.end());
  return orrery::testing::orrery(all);
}

json campaign_of(std::vector<std::string> more) {
  more.emplace_back("--json");
  const CommandResult r = of_tiny(more);
  INFO(r.err);
  REQUIRE(r.code == 0);
  return json::parse(r.out);
}

}  // namespace

TEST_CASE("a campaign is a predicted step so many times") {
  // Steps of 8 · 64 tokens on 8 devices; money and energy from device hours.
  const json r = campaign_of({"--tokens", "512e6", "--price", "2", "--power", "500"});
  CHECK(r["steps"] == 1e6);
  CHECK(r["devices"] == 8);
  const double wall = r["wall_seconds"];
  CHECK(wall == Approx(1e6 * r["step_time"]["seconds"].get<double>()));
  CHECK(r["device_hours"].get<double>() == Approx(8 * wall / 3600));
  CHECK(r["money"].get<double>() == Approx(16 * wall / 3600));
  CHECK(r["energy_joules"].get<double>() == Approx(4000 * wall));
  CHECK(r["lost"] == 0);
}

TEST_CASE("a campaign with failures loses what its interval makes it lose") {
  const std::vector<std::string> failing{"--tokens",     "5e12", "--mtbf",    "1000 h",
                                         "--checkpoint", "30 s", "--restart", "5 min"};
  const json best = campaign_of(failing);
  CHECK(best["wall_seconds"] > best["work_seconds"]);
  CHECK(best["failures"].get<double>() == Approx(best["wall_seconds"].get<double>() / (1000 * 3600 / 8.0)));
  std::vector<std::string> rare = failing;
  rare.insert(rare.end(), {"--interval", "20 h"});
  CHECK(campaign_of(rare)["lost"] > best["lost"]);
  const CommandResult text = of_tiny(failing);
  for (const char* line : {"checkpoint every", "failures", "lost", "device hours"})
    CHECK_THAT(text.out, Catch::Contains(line));
}

TEST_CASE("a campaign says what it needs to know") {
  const auto refusal = [](std::vector<std::string> more) {
    const CommandResult r = of_tiny(std::move(more));
    CHECK(r.code == 2);
    return r.err;
  };
  CHECK_THAT(refusal({}), Catch::Contains("how many tokens is missing"));
  CHECK_THAT(refusal({"--tokens", "many"}), Catch::Contains("option --tokens is 'many'"));
  CHECK_THAT(refusal({"--tokens", "1e9", "--mtbf", "100 h"}),
             Catch::Contains("how long a checkpoint takes is missing"));
  CHECK_THAT(refusal({"--tokens", "1e9", "--checkpoint", "1 s"}),
             Catch::Contains("how often there is a checkpoint is missing"));
  CHECK_THAT(refusal({"--tokens", "1e9", "--restart", "1 s"}), Catch::Contains("nothing restarts where nothing fails"));
  CHECK_THAT(refusal({"--tokens", "1e9", "--set", "workload={infer: {}}", "--set", "~strategy"}),
             Catch::Contains("does not train"));
}
