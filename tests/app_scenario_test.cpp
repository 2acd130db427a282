// SPDX-License-Identifier: Apache-2.0
#include "sim/app/scenario.hpp"

#include <algorithm>
#include <regex>

#include "sim/base/sha256.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr const char* kTiny = "model: gpt2-tiny\nworkload: {train: {batch: 2, sequence: 16}}\n";

Scenario load(const std::string& path, const std::vector<Override>& overrides = {},
              const Environment& environment = {}) {
  return load_scenario(path, Locations{environment}, environment, overrides);
}

std::string error_of(const std::string& path, const std::vector<Override>& overrides = {}) {
  try {
    load(path, overrides);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("what a scenario leaves out has its default") {
  const TemporaryFolder folder;
  const Scenario s = load(folder.file("tiny.yaml", kTiny));
  CHECK(s.name == "tiny");
  CHECK(s.strategy == "single");
  CHECK(s.cluster.name == "host");
  CHECK(s.workload_name() == "train");
  CHECK(s.options.workload.train->microbatches == 1);
  CHECK(s.model.parameter_count() == 1350400);
}

TEST_CASE("later layers win: includes, file, environment, --set, flags") {
  const TemporaryFolder folder;
  folder.file("base.yaml",
              "model: gpt2-tiny\nworkload: {train: {batch: 1, sequence: 16, steps: 1, seed: 1, microbatches: 1}}\n");
  const std::string path =
      folder.file("s.yaml", "include: [base.yaml]\nworkload: {train: {batch: 2, steps: 2, seed: 2}}\n");
  const Environment environment{{"ORRERY_WORKLOAD__TRAIN__STEPS", "3"}, {"ORRERY_WORKLOAD__TRAIN__SEED", "3"}};
  const Scenario s = load(path, {{"workload.train.seed=4", "--set"}, {"workload.train.seed=5", "--seed"}}, environment);
  const TrainOptions& o = *s.options.workload.train;
  CHECK(o.sequence == 16);  // from the include
  CHECK(o.batch == 2);      // from the file
  CHECK(o.steps == 3);      // from the environment
  CHECK(o.seed == 5);       // from the last override
}

TEST_CASE("files are included by files alone") {
  const TemporaryFolder folder;
  const std::string path = folder.file("s.yaml", kTiny);
  CHECK(error_of(path, {{"include=[base.yaml]", "--set"}}) ==
        "--set cannot include files\n  hint: write a scenario that does");
  CHECK(error_of(path, {{"~include", "--set"}}) == error_of(path, {{"include+=base.yaml", "--set"}}));
  CHECK_THROWS_WITH(load(path, {}, {{"ORRERY_INCLUDE", "[base.yaml]"}}),
                    Catch::StartsWith("ORRERY_INCLUDE cannot include files"));
}

TEST_CASE("a workload of another kind replaces that of an include") {
  const TemporaryFolder folder;
  folder.file("base.yaml", kTiny);
  const Scenario s = load(folder.file("s.yaml", "include: [base.yaml]\nworkload: {generate: {tokens: 2}}\n"));
  CHECK(s.workload_name() == "generate");
}

TEST_CASE("every number of a scenario, a cluster and a strategy has a least, but for seeds") {
  std::vector<OptionInfo> all = describe_options<ScenarioOptions>();
  for (const OptionInfo& o : describe_options<Cluster>("cluster")) all.push_back(o);
  for (const StrategyEntry& s : strategies())
    for (OptionInfo o : s.options()) {
      o.path = std::string{s.name} + "." + o.path;
      all.push_back(std::move(o));
    }
  const std::regex number{"^(list of: |map of: )*(integer|number|size in bytes|duration|bandwidth|rate).*"};
  const std::regex with_least{".*, (at least|more than|from) .*"};
  std::size_t numbers = 0;
  for (const OptionInfo& o : all) {
    if (!std::regex_match(o.type, number)) continue;
    ++numbers;
    INFO(o.path << " (" << o.type << ")");
    CHECK(std::regex_match(o.type, with_least) != o.path.ends_with("seed"));
  }
  CHECK(numbers > 100);
}

TEST_CASE("errors say file, line and column, and what would be right") {
  const TemporaryFolder folder;
  const std::string path = folder.file("s.yaml", "model: gpt2-tiny\nworkload: {train: {bach: 2}}\n");
  CHECK(error_of(path) ==
        path +
            ":2:20: unknown key 'bach'\n  workload: {train: {bach: 2}}\n                     ^\n"
            "  hint: did you mean 'batch'? known keys: batch, microbatches, sequence, target_sequence, dtype, "
            "recompute, recompute_parts, "
            "recompute_interval, activation_budget, stored_scores, eager_attention, wide_gradients, loss, "
            "waits_for_loss, "
            "waits_for_experts, weigh_inside, copied_values, narrow, keep_narrow, "
            "frozen, "
            "dropout, attention_dropout, dropout_masks, "
            "capacity_factor, capacity_groups, dense_to_sparse, routing, optimizer, "
            "steps, seed, packing, id_skew, text");
  const auto of_value = [&](const std::string& option, const std::string& value) {
    const std::string file =
        folder.file("v.yaml", "model: gpt2-tiny\nworkload:\n  train:\n    " + option + ": " + value);
    const std::string text = error_of(file);
    return text.starts_with(file) ? text.substr(file.size()) : text;
  };
  CHECK(of_value("batch", "-4") == ":4:12: -4 is out of range\n  batch: -4\n         ^\n  hint: at least 1");
  CHECK(of_value("batch", "9223372036854775807") ==
        ":4:12: 9223372036854775807 is out of range\n  batch: 9223372036854775807\n         ^\n"
        "  hint: from 1 to 1000000000000");
  CHECK(of_value("optimizer", "{rate: -1}") ==
        ":4:23: -1 is out of range\n  optimizer: {rate: -1}\n                    ^\n  hint: at least 0");
  CHECK(
      of_value("optimizer", "{beta2: 1}") ==
      ":4:24: 1 is out of range\n  optimizer: {beta2: 1}\n                     ^\n  hint: at least 0 and less than 1");
}

TEST_CASE("a wrong scenario gives one clear error") {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& text) {
    const std::string error = error_of(folder.file("s.yaml", text));
    const std::string prefix = folder / "s.yaml";
    return error.starts_with(prefix) ? error.substr(prefix.size()) : error;
  };
  CHECK_THAT(message("workload: {train: {}}\n"), Catch::Contains("missing key 'model'"));
  CHECK_THAT(message("model: gpt2-tiny\n"), Catch::Contains("missing key 'workload'"));
  CHECK_THAT(message("model: gpt2-tiny\nworkload: {}\n"),
             Catch::StartsWith(":2:11: a scenario has one workload, this one has 0"));
  CHECK_THAT(message("model: gpt2-tiny\nworkload: {train: {}, infer: {}}\n"),
             Catch::StartsWith(":2:11: a scenario has one workload, this one has 2"));
  CHECK_THAT(message("model: gpt2-tny\nworkload: {train: {}}\n"),
             Catch::StartsWith(":1:8: unknown model 'gpt2-tny'; did you mean 'gpt2-tiny'?"));
  CHECK_THAT(message("model: [1]\nworkload: {train: {}}\n"),
             Catch::StartsWith(":1:8: expected a file or a configuration as the model"));
  CHECK_THAT(message("model: gpt2-tiny\ncluster: dgx_h10\nworkload: {train: {}}\n"),
             Catch::StartsWith(":2:10: unknown cluster 'dgx_h10'; did you mean 'dgx_h100'?"));
  CHECK_THAT(message("model: gpt2-tiny\nstrategy: [{singel: {}}]\nworkload: {train: {}}\n"),
             Catch::Contains("unknown strategy 'singel'; did you mean 'single'?"));
  CHECK_THAT(message("model: gpt2-tiny\nstrategy: {single: {}}\nworkload: {train: {}}\n"),
             Catch::StartsWith(":2:11: expected a list of one strategy"));
  CHECK_THAT(message("model: gpt2-tiny\nweights: no.safetensors\nworkload: {train: {}}\n"),
             Catch::StartsWith(":2:10: cannot find the file 'no.safetensors'"));
  CHECK_THAT(message("model: gpt2-tiny\nworkload: {train: {text: no.txt}}\n"),
             Catch::StartsWith(":2:26: cannot find the text 'no.txt'"));
  CHECK_THAT(message("model: llama-tiny\nworkload: {generate: {chunk: 4, speculate: {method: draft}}}\n"),
             Catch::Contains("speculation reads whole prompts of one length"));
  const std::string on_square = "model: gpt2-tiny\ncluster: dgx_h100\nstrategy: [{optimus-2d: {mesh: row2 col2}}]\n";
  CHECK(
      message(on_square + "order: row2\nworkload: {train: {}}\n") ==
      ":4:8: the order has 1 ranks on col, the mesh has 2\n  order: row2\n         ^\n  hint: the factors of each axis "
      "multiply to its size in the mesh, row2 col2");
  CHECK_THAT(message("model: gpt2-tiny\norder: dp2\nworkload: {train: {}}\n"),
             Catch::StartsWith(":2:8: the strategy `single` has one rank: there is no order"));
  CHECK(message(on_square + "algorithms: {all_to_all: ring, broadcast: tree}\nworkload: {train: {}}\n") ==
        ":4:26: all_to_all has no algorithm 'ring'\n  algorithms: {all_to_all: ring, broadcast: tree}\n"
        "                           ^\n  hint: all_to_all can be auto, direct or bruck");
  CHECK_THAT(message("include: [no.yaml]\n"), Catch::StartsWith(":1:11: cannot find the file 'no.yaml' to include"));
  CHECK_THAT(message("include: [s.yaml]\n"), Catch::Contains("files include each other more than 8 deep"));
  CHECK_THAT(message("model: gpt2-tiny\nworkload: {train: {}}\nworkload: {infer: {}}\n"),
             Catch::Contains("duplicate key"));
}

TEST_CASE("orders and algorithms go to the cluster of a scenario, and read back") {
  const TemporaryFolder folder;
  const std::string path =
      folder.file("s.yaml",
                  "model: gpt2-tiny\ncluster: dgx_h100_x4\nstrategy: [{optimus-2d: {mesh: row4 col4}}]\norder: row2 "
                  "col2 row2 col2\n"
                  "algorithms: {all_reduce: double_tree, broadcast: ring}\nworkload: {train: {}}\n");
  const Scenario s = load(path);
  CHECK(s.cluster.device_of_rank[4] == 2);
  CHECK(s.cluster.algorithms.of(CollectiveKind::AllReduce) == CollectiveAlgorithm::DoubleTree);
  CHECK(s.cluster.algorithms.of(CollectiveKind::Broadcast) == CollectiveAlgorithm::Ring);
  CHECK_FALSE(s.cluster.algorithms.of(CollectiveKind::AllGather));
  const Scenario again = make_scenario(resolved_scenario(s), s.name, Locations{Environment{}});
  CHECK(canonical_scenario(again) == canonical_scenario(s));
  CHECK(again.cluster.device_of_rank == s.cluster.device_of_rank);
}

TEST_CASE("the sentence of each kind of collective names its algorithms") {
  for (const OptionInfo& o : describe_options<CollectiveChoice>())
    for (const EnumName<CollectiveKind>& kind : kinds_with_choice())
      for (const EnumName<CollectiveAlgorithm>& a : enum_names(CollectiveAlgorithm{})) {
        if (kind.name != o.path) continue;
        const auto legal = algorithms_of(kind.value);
        const std::regex word{"\\b" + std::string{a.name} + "\\b"};
        CAPTURE(kind.name, a.name);
        CHECK(std::regex_search(o.summary, word) == (std::find(legal.begin(), legal.end(), a.value) != legal.end()));
      }
}

TEST_CASE("an environment variable that names no key is refused") {
  const TemporaryFolder folder;
  const std::string path = folder.file("s.yaml", kTiny);
  CHECK_THROWS_WITH(load(path, {}, {{"ORRERY_WORKLAOD__TRAIN__BATCH", "1"}}),
                    Catch::StartsWith("environment variable ORRERY_WORKLAOD__TRAIN__BATCH names no key of a scenario"));
  CHECK_NOTHROW(load(path, {}, {{"ORRERY_HOME", "/tmp"}}));
}

TEST_CASE("the resolved scenario reads back as the same scenario") {
  const TemporaryFolder folder;
  const Scenario s = load(folder.file("s.yaml", kTiny), {{"workload.train.optimizer.rate=0.01", "--set"}});
  const Scenario again = load(folder.file("s2.yaml", to_yaml(resolved_scenario(s))));
  CHECK(canonical_scenario(again) == canonical_scenario(s));
  CHECK(again.options.workload.train->optimizer.rate == 0.01);
}

TEST_CASE("the id of a scenario depends on the contents of its files, not on where they lie") {
  const TemporaryFolder a, b;
  const std::string text = "model: gpt2-tiny\nworkload: {train: {batch: 2, sequence: 16, text: t.txt}}\n";
  a.file("t.txt", std::string(1000, 'x'));
  b.file("t.txt", std::string(1000, 'x'));
  const std::string first = canonical_scenario(load(a.file("s.yaml", text)));
  CHECK(first == canonical_scenario(load(b.file("s.yaml", text))));
  b.file("t.txt", std::string(1000, 'y'));
  CHECK(first != canonical_scenario(load(b / "s.yaml")));
}

TEST_CASE("a model may stand in the scenario itself") {
  const TemporaryFolder folder;
  const Scenario s = load(folder.file("s.yaml",
                                      "model: {model_type: gpt2, n_embd: 64, n_layer: 1, n_head: 2, vocab_size: 10, "
                                      "n_positions: 8}\nworkload: {infer: {}}\n"));
  // 10·64 + 8·64 tokens and positions; 12·64² + 13·64 of a block; 2·64 of the last norm.
  CHECK(s.model.parameter_count() == 10 * 64 + 8 * 64 + 12 * 64 * 64 + 13 * 64 + 2 * 64);
}
