// SPDX-License-Identifier: Apache-2.0
// `orrery fit`, and runs on a cluster that this computer stands for.
#include <nlohmann/json.hpp>
#include <set>

#include "sim/app/memory_ways.hpp"
#include "sim/model/load.hpp"
#include "tests/app_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

json fit_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "fit");
  arguments.emplace_back("--json");
  const CommandResult r = testing::orrery(arguments);
  INFO(r.err);
  REQUIRE(r.code == 0);
  return json::parse(r.out);
}

json way_of(const json& all, std::string_view name) {
  for (const json& w : all["ways"])
    if (w["name"] == name) return w;
  FAIL("there is no way " << name);
  return {};
}

/// An H100 with 20 MB.
constexpr const char* kSmall =
    "device: h100_sxm\ndevice_memory: 20 MB\nhost: {memory: 64 GiB, cores: 8}\n"
    "host_link: {bandwidth: 63 GB/s, latency: 2 us}\ndisk: {size: 1 TB, bandwidth: 5 GB/s, latency: 100 us}\n";

}  // namespace

TEST_CASE("fit tries every strategy that moves tensors to other tiers, and what replicas share") {
  const std::vector<MemoryWay> one = memory_ways(1, {1e9, 1e10, 0}), eight = memory_ways(8, {1e9, 1e10, 0});
  const auto names = [](const std::vector<MemoryWay>& ways) {
    std::set<std::string> out;
    for (const MemoryWay& w : ways) CHECK(out.insert(w.name).second);
    return out;
  };
  for (const char* name : {"ddp", "zero1", "zero2", "zero3", "zero-offload", "zero-offload, zero3",
                           "zero-infinity, host", "zero-infinity, disk", "activation-offload", "patrickstar",
                           "elixir-v1", "memo, all swapped", "memo, inputs swapped"})
    CHECK(names(eight).count(name) == 1);
  CHECK(names(one).count("single") == 1);
  CHECK(names(one).count("zero3") == 0);
  for (const auto& ways : {one, eight})
    for (const StrategyEntry& entry : strategies()) {
      const auto options = entry.options();
      const bool moves = std::any_of(options.begin(), options.end(),
                                     [](const OptionInfo& o) { return o.path.rfind("parallel.", 0) == 0; });
      const bool tried = std::any_of(ways.begin(), ways.end(), [&](const MemoryWay& w) {
        return w.strategy.rfind(std::string{entry.name} + ":", 0) == 0;
      });
      CAPTURE(entry.name);
      if (moves) CHECK(tried);
    }
}

TEST_CASE("fit says which ways hold a model, and what is too small for the others") {
  const json all = fit_of({"gpt2-tiny", "--cluster", "dgx_h100"});
  CHECK(all["devices"] == 8);
  for (const json& way : all["ways"]) {
    INFO(way["name"]);
    CHECK(way["fits"] == true);
    CHECK(way["limit"] == "");
    CHECK(way["step_time"]["seconds"] > 0);
    CHECK(way["peak"]["device"]["bytes"] > 0);
  }
  const TemporaryFolder folder;
  const json small = fit_of({"gpt2-tiny", "--cluster", folder.file("small.yaml", kSmall), "--sequence", "64"});
  const json single = way_of(small, "single"), disk = way_of(small, "zero-infinity, disk");
  CHECK(single["fits"] == false);
  CHECK_THAT(single["limit"].get<std::string>(), Catch::StartsWith("device memory: "));
  CHECK(disk["fits"] == true);
  CHECK(disk["peak"]["disk"]["bytes"] > 0);
  CHECK(small["ways"].front()["fits"] == true);  // those that fit come first
  CHECK(small["ways"].back()["fits"] == false);
}

TEST_CASE("the fastest recomputation that fits is shown, and what lies between none and all is tried") {
  const TemporaryFolder folder;
  std::string text = kSmall;
  text.replace(text.find("20 MB"), 5, "45 MB");
  const json all = fit_of({"gpt2-tiny", "--cluster", folder.file("small.yaml", text), "--batch", "16"});
  bool between = false;
  for (const json& way : all["ways"]) {
    INFO(way["name"]);
    double best = 1e300;
    for (const json& trial : way["trials"])
      if (trial["fits"]) best = std::min(best, trial["step_time"]["seconds"].get<double>());
    if (way["fits"]) CHECK(way["step_time"]["seconds"] == best);
    if (way["name"].get<std::string>().rfind("memo", 0) == 0) {
      CHECK(way["trials"].size() == 1);  // it says itself what runs again
    }
    between = between || way["trials"].size() > 2;
  }
  CHECK(between);
}

TEST_CASE("the largest that fits is found, and the next larger one does not fit") {
  const TemporaryFolder folder;
  const std::string cluster = folder.file("small.yaml", kSmall);
  const json found = fit_of({"gpt2-tiny", "--cluster", cluster, "--sequence", "64", "--max-batch"});
  const json way = way_of(found, "zero-offload");
  const std::int64_t most = way["largest"]["batch"];
  REQUIRE(most > 0);
  CHECK_THAT(way["largest"]["next"].get<std::string>(), Catch::StartsWith("device memory: "));
  const auto fits = [&](std::int64_t batch) {
    const json at = fit_of({"gpt2-tiny", "--cluster", cluster, "--sequence", "64", "--batch", std::to_string(batch)});
    return way_of(at, "zero-offload")["fits"].get<bool>();
  };
  CHECK(fits(most));
  CHECK_FALSE(fits(most + std::max<std::int64_t>(1, most / 64)));
  const json longest = fit_of({"gpt2-tiny", "--cluster", cluster, "--max-sequence"});
  CHECK(way_of(longest, "zero-offload")["largest"]["sequence"].get<std::int64_t>() % 128 == 0);
  CHECK(testing::orrery({"fit", "gpt2-tiny", "--max-batch", "--max-sequence"}).code == 2);
}

TEST_CASE("microbatches share an update, and are held one at a time") {
  const auto fit_with = [](const char* microbatches) {
    return fit_of(
        {"gpt2", "--cluster", "dgx1_v100", "--batch", "2", "--sequence", "128", "--microbatches", microbatches});
  };
  const json one = fit_with("1"), eight = fit_with("8");
  CHECK(eight["batch"] == 2);
  CHECK(eight["microbatches"] == 8);
  const auto speed = [](const json& all, const char* way) {
    return way_of(all, way)["tokens_per_second"].get<double>();
  };
  // The update on the host takes four fifths of a step of one microbatch: without it 8 / (8 · 0.2 + 0.8) would be 3.3.
  CHECK(speed(eight, "zero-offload") > 2 * speed(one, "zero-offload"));
  const auto device = [](const json& all, const char* way) {
    return way_of(all, way)["peak"]["device"]["bytes"].get<double>();
  };
  CHECK(device(eight, "ddp") < 1.1 * device(one, "ddp"));

  const CommandResult simulated = testing::orrery(
      {"simulate", "--model", "gpt2", "--cluster", "dgx1_v100", "--set",
       "strategy=[{zero-offload: {parallel: {mesh: dp8, data: {kind: zero2}}}}]", "--set",
       "workload={train: {batch: 128, microbatches: 8, sequence: 128, dtype: f16}}", "--no-out", "--json"});
  INFO(simulated.err);
  REQUIRE(simulated.code == 0);
  const json way = way_of(eight, "zero-offload");
  REQUIRE(way["recompute"] == "none");
  CHECK(json::parse(simulated.out)["step_time"]["seconds"] == way["step_time"]["seconds"]);
}

TEST_CASE("more memory holds larger networks of a kind") {
  const TemporaryFolder folder;
  std::string text = kSmall;
  text.replace(text.find("20 MB"), 5, "4 GiB");
  const json models =
      fit_of({"gpt2", "--cluster", folder.file("small.yaml", text), "--sequence", "128", "--max-model"});
  const auto largest = [&](const char* name) { return way_of(models, name)["largest"]["model"].get<double>(); };
  CHECK(largest("single") > 1e8);
  CHECK(largest("single") < 4.0 * (1 << 30) / 16);  // bytes of a parameter and its states
  CHECK(largest("zero-offload") > 4 * largest("single"));
  CHECK(largest("zero-offload") < 4.0 * (1 << 30) / 2);
  CHECK(largest("patrickstar") > largest("single"));
  CHECK(models["devices"] == 1);
}

TEST_CASE("networks of other sizes keep what their kind is") {
  const Node config = read_json(std::string{ORRERY_SOURCE_DIR} + "/scenarios/models/llama-3-8b.json");
  const auto model = [](const Node& n) { return model_from_config(n, "scaled"); };
  const Model same = model(with_size(config, {32, 4096})), large = model(with_size(config, {64, 8192}));
  CHECK(same.parameter_count() == 8'030'261'248);
  const auto& t = std::get<Transformer>(large.network);
  CHECK(t.decoder.size() == 64);
  CHECK(t.decoder.front().attention.heads == 64);
  CHECK(t.decoder.front().attention.kv_heads == 16);
  CHECK(std::get<Mlp>(t.decoder.front().ffn).up.out == 2 * 14336);
  CHECK(std::get<Transformer>(model(with_positions(config, 100'000)).network).max_positions == 100'000);
  const std::vector<NetworkSize> sizes = network_sizes();
  for (std::size_t i = 1; i < sizes.size(); ++i)
    CHECK(sizes[i].layers * sizes[i].hidden * sizes[i].hidden >
          sizes[i - 1].layers * sizes[i - 1].hidden * sizes[i - 1].hidden);
  const Node t5 = read_json(std::string{ORRERY_SOURCE_DIR} + "/scenarios/models/t5-small.json");
  CHECK_THAT(user_error([&] { with_size(t5, {2, 64}); }), Catch::Contains("cannot be made larger and smaller"));
}

TEST_CASE("fit refuses what is no model, no part of a cluster, or wrong under all ways") {
  CHECK(testing::orrery({"fit", "no-such-model"}).code == 2);
  CHECK(testing::orrery({"fit"}).code == 2);
  CHECK(testing::orrery({"fit", "gpt2", "--cluster", "dgx_h100", "--devices", "9"}).code == 2);
  const CommandResult long_one = testing::orrery({"fit", "gpt2", "--cluster", "dgx_h100", "--sequence", "4096"});
  CHECK(long_one.code == 2);
  CHECK_THAT(long_one.err, Catch::Contains("1024 positions of gpt2\n"));
}

TEST_CASE("a run behind paced links is predicted with what it copies and keeps on each tier") {
  const std::vector<std::string> scenario{"zero-offload", "--set", "workload.train.steps=1", "--json"};
  const auto with = [&](std::string command) {
    std::vector<std::string> all{std::move(command)};
    all.insert(all.end(), scenario.begin(), scenario.end());
    if (all.front() == "run") all.emplace_back("--no-out");
    const CommandResult r = testing::orrery(all);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return json::parse(r.out);
  };
  const json predicted = with("simulate"), measured = with("run");
  CHECK(predicted["transfers"] == measured["transfers"]);
  CHECK(predicted["transfers"].size() == 2);
  CHECK(predicted["peak_memory"]["tiers"]["pinned"]["bytes"] == measured["peak_memory"]["tiers"]["pinned"]["bytes"]);
  CHECK(predicted["peak_memory"]["capacity"] == 256.0 * 1024 * 1024);
}
