// SPDX-License-Identifier: Apache-2.0
// Values that options refuse, help of several commands, results that cannot be written.
#include <cstdio>

#include "tests/app_testing.hpp"

using namespace orrery;
using orrery::testing::CommandResult;
using orrery::testing::TemporaryFolder;

TEST_CASE("commands of two words are explained together") {
  using orrery::testing::orrery;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"topo", "--help"}, {"help", "topo"}}) {
    const CommandResult r = orrery(words);
    CHECK(r.code == 0);
    CHECK_THAT(r.out, Catch::StartsWith("orrery topo show: ") && Catch::Contains("\n\norrery topo import: "));
  }
  CHECK(orrery({"topo"}).code == 2);
  CHECK(orrery({"topo"}).err ==
        "orrery: 'orrery topo' needs one more word\n  hint: known commands: topo show, topo import\n");
  CHECK(orrery({"topo", "shw", "--help"}).code == 2);
}

TEST_CASE("a result that cannot be written is an error") {
  TerminalFacts facts;
  facts.out = std::fopen("/dev/full", "w");
  REQUIRE(facts.out != nullptr);
  Console console{facts};
  CHECK_THROWS_WITH(console.out("x"), "cannot write the result: No space left on device");
  std::fclose(facts.out);
  const CommandResult r =
      orrery::testing::orrery({"serve", "serve_llama3_8b", "--no-interval", "--requests", "/dev/null/r.csv"});
  CHECK(r.code == 3);
  CHECK(r.err == "orrery: cannot write '/dev/null/r.csv': Not a directory\n");
}

TEST_CASE("values of options are refused by the option's name") {
  using orrery::testing::orrery;
  CHECK(orrery({"calibrate", "--budget", "-5s"}).err ==
        "orrery: option --budget is '-5s'\n  hint: give more than 0, such as 2.5 us\n");
  CHECK_THAT(orrery({"calibrate", "--budget", "5"}).err,
             Catch::StartsWith("orrery: option --budget: a duration needs a unit\n"));
  CHECK_THAT(orrery({"memory", "gpt2_tiny_train", "--capacity", "5"}).err,
             Catch::StartsWith("orrery: option --capacity: a size in bytes needs a unit\n"));
  CHECK(orrery({"memory", "gpt2_tiny_train", "--rank", "1"}).err ==
        "orrery: there is no rank 1\n  hint: ranks are 0 to 0\n");
  CHECK(orrery({"calibrate", "--from"}).code == 2);
  CHECK(orrery({"fit", "gpt2-tiny", "--dtype", "int8"}).err ==
        "orrery: option --dtype is 'int8'\n  hint: known values: bf16, f16, f32\n");
  CHECK_THAT(orrery({"speculate", "llama-3-8b", "--prompt", "-4"}).err,
             Catch::StartsWith("orrery: option --prompt is '-4'\n"));
  CHECK_THAT(orrery({"simulate", "gpt2_tiny_train", "--no-out", "--set", "workload.train.microbatches=5"}).err,
             Catch::EndsWith("hint: batch can be 5 or 10\n"));
  CHECK_THAT(orrery({"simulate", "gpt2_tiny_train", "--no-out", "--set", "workload.train.microbatches=9"}).err,
             Catch::EndsWith("hint: batch can be 9\n"));
}

TEST_CASE("options that do not go together are told with the place of the one that is named first") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& train) {
    const std::string path = folder.file("s.yaml",
                                         "model: gpt2-tiny\ncluster: dgx_h100\nstrategy: [{ddp: {mesh: dp16}}]\n"
                                         "workload: {train: {" +
                                             train + "}}\n");
    const std::string text = orrery::testing::orrery({"simulate", path, "--no-out"}).err;
    return text.starts_with("orrery: " + path) ? text.substr(8 + path.size()) : text;
  };
  CHECK(error("batch: 8") ==
        ":4:20: batch 8 is not a multiple of 16, the microbatches of all replicas\n  workload: {train: {batch: 8}}\n"
        "                     ^\n  hint: batch can be 16\n");
  CHECK_THAT(error("batch: 16, capacity_factor: 1"),
             Catch::StartsWith(":4:31: capacity_factor is for models of experts, and gpt2-tiny has none\n"));
  // What nobody wrote is not there to be pointed at: the mesh is.
  CHECK_THAT(error("steps: 1"), Catch::StartsWith(":3:19: batch "));
  // A cluster that the scenario holds itself has no name.
  const std::string own = folder.file("own.yaml",
                                      "model: gpt2-tiny\ncluster: {devices_per_node: 2, device: h100_sxm}\n"
                                      "strategy: [{ddp: {mesh: dp2}}]\nworkload: {train: {batch: 2}}\n");
  CHECK_THAT(orrery::testing::orrery({"simulate", own, "--no-out"}).err,
             Catch::StartsWith("orrery: the cluster has no link between the 2 devices of a node\n"));
}
