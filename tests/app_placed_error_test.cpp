// SPDX-License-Identifier: Apache-2.0
// Options that do not go together: where in the scenario the error is told.
#include "sim/app/placed_error.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// A scenario with `@` in front of the key, or the value, where its error must be told.
struct Site {
  std::string told;  // line and column, from 1
  std::string text;

  explicit Site(std::string marked) : text{std::move(marked)} {
    const std::size_t at = text.find('@');
    const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const std::size_t begin = text.rfind('\n', at) + 1;
    told = fmt::format(":{}:{}: ", line + 1, at - begin + 1);
    text.erase(at, 1);
  }
};

/// The error of `orrery COMMAND` behind the name of the file; all of it where it has another form.
std::string error_of(const Site& site, const char* command = "simulate") {
  const TemporaryFolder folder;
  const std::string path = folder.file("s.yaml", site.text);
  std::vector<std::string> words{command, path};
  if (std::string_view{command} == "simulate") words.emplace_back("--no-out");
  const std::string text = orrery::testing::orrery(words).err;
  return text.starts_with("orrery: " + path) ? text.substr(8 + path.size()) : text;
}

Site training(const std::string& strategy, const std::string& train) {
  return Site{
      fmt::format("model: gpt2-tiny\ncluster: dgx_h100\nstrategy: [{}]\nworkload:\n  train: {}\n", strategy, train)};
}

constexpr const char* kBatch = "{batch: 4, microbatches: 2, sequence: 16}";

void check_told(const Site& site, const std::string& message, const char* command = "simulate") {
  CHECK_THAT(error_of(site, command), Catch::StartsWith(site.told + message));
}

}  // namespace

TEST_CASE("an error is placed by the keys that it is about, whatever its words are", "[app]") {
  const Node scenario = parse_yaml(
      "strategy: [{parallel: {mesh: dp2, layers: [{blocks: 0}, {mesh: tp2, chunks: 1}]}}]\n"
      "workload: {train: {recompute: full, mesh: 1}}\n",
      "s.yaml");
  const auto place = [&](const UserError& e) {
    const Diagnostic d = placed(e, scenario).diagnostics().front();
    return fmt::format("{}:{}:{}: {}", d.file, d.line, d.column, d.message);
  };
  CHECK(place(OptionError{{"mesh"}, "recompute and chunks"}) == "s.yaml:1:24: recompute and chunks");
  CHECK(place(OptionError{{"layers[1].mesh"}, "m"}) == "s.yaml:1:58: m");
  CHECK(place(OptionError{{"train.recompute"}, "m"}) == "s.yaml:2:20: m");
  CHECK(place(OptionError{{"batch", "chunks"}, "m"}) == "s.yaml:1:69: m");      // nobody wrote the first one
  CHECK(place(OptionError{{"layers[2].mesh"}, "m"}) == "s.yaml:1:1: m");        // nor this
  CHECK(place(UserError{"mesh and chunks"}) == "s.yaml:1:1: mesh and chunks");  // about none
  CHECK(place(UserError{Diagnostic{"m", {}, "other.yaml", 7, 3, {}}}) == "other.yaml:7:3: m");
}

TEST_CASE("a mesh that does not divide is told where it stands, that of single layers too", "[app]") {
  check_told(training("{parallel: {@mesh: tp3}}", kBatch), "tp 3 does not divide 4 attention heads");
  check_told(training("{parallel: {@mesh: qp3}}", kBatch), "unknown axis 'qp'");
  check_told(training("{parallel: {mesh: pp2, @schedule: eager}}", kBatch), "unknown schedule 'eager'");
  check_told(training("{parallel: {mesh: dp2, @chunks: 2}}", kBatch), "chunks cuts the stages of a pipeline");
  check_told(
      training("{parallel: {mesh: dp2, layers: [{blocks: 0, recompute: full}, {blocks: 1, @mesh: dp3}]}}", kBatch),
      "the mesh `dp3` of blocks 1 has 3 ranks");
  check_told(training("{parallel: {mesh: dp2, layers: [{@blocks: 99}]}}", kBatch), "'99' are no blocks of the model");
  check_told(training("{ddp: {@mesh: dp3}}", "{microbatches: 1}"), "batch ");
}

TEST_CASE("options of strategies that offload are told where they stand", "[app]") {
  check_told(training("{gemini: {placement: static, @device_memory: 40 GB}}", kBatch),
             "`device_memory` and `step` are options of placement `auto`");
  check_told(training("{@memo: {}}", kBatch), "memo does not know what part of the tokens to swap");
  check_told(training("{memo: {alpha: 0.5}}", "{batch: 4, sequence: 16, @recompute: full}"),
             "memo says itself what is computed again");
}

TEST_CASE("what a server cannot do with its mesh is told at the mesh", "[app][serving]") {
  const auto serving = [](const char* mesh, const char* serve) {
    return Site{
        fmt::format("model: llama-tiny\ncluster: dgx_h100\nstrategy: [parallel: {{{}}}]\nworkload:\n  serve:\n"
                    "    traffic: {{rate: 1, requests: 2, prompt: {{mean: 8}}, output: {{mean: 8}}}}\n{}",
                    mesh, serve)};
  };
  check_told(serving("@mesh: dp2", ""), "a server splits matrices over tp only", "serve");
  check_told(serving("@mesh: tp3", ""), "tp 3 does not divide", "serve");
  check_told(serving("mesh: tp4", "    @replicas: 4\n"), "4 replicas of 4 ranks each", "serve");
}

TEST_CASE("what speculation cannot do is told at the option of the drafter or of the generation", "[app]") {
  const auto speculating = [](const char* generate, const char* speculate) {
    return Site{
        fmt::format("model: llama-tiny\ncluster: dgx_h100\nworkload:\n  generate:\n    batch: 1\n{}"
                    "    speculate: {{{}accuracy: {{hits: [[0.7]]}}}}\n",
                    generate, speculate)};
  };
  check_told(speculating("    @top_k: 4\n", "method: draft, "), "speculation keeps the distribution of a temperature");
  check_told(speculating("    @chunk: 4\n", "method: draft, "), "speculation reads whole prompts of one length");
  check_told(speculating("", "method: draft, network: {hidden: 64, @heads: 5}, "),
             "a drafter of width 64 cannot have 5");
}
