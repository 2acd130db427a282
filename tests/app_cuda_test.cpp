// SPDX-License-Identifier: Apache-2.0
// Command lines on GPUs: the same plans, files and numbers as on the processor.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/app_testing.hpp"
#include "tests/cuda_testing.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

const std::string kSmallGpt2 = "{model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 16, vocab_size: 61}";

CommandResult on_gpu(const std::vector<std::string>& arguments, Environment environment = {}) {
  return orrery::testing::orrery(arguments, std::move(environment), gpu_under_test);
}

/// A network of bytes that learns from a novel.
std::vector<std::string> training(const std::string& dtype, std::int64_t steps) {
  return {"run",
          "--json",
          "--no-out",
          "--set",
          "model={model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 16, vocab_size: 256}",
          "--set",
          fmt::format(
              "workload={{train: {{batch: 4, sequence: 16, steps: {}, dtype: {}, text: {}/scenarios/data/alice.txt, "
              "optimizer: {{rate: 0.01}}}}}}",
              steps, dtype, ORRERY_SOURCE_DIR)};
}

json document(const CommandResult& r) {
  INFO(r.err);
  REQUIRE(r.code == 0);
  return json::parse(r.out);
}

std::vector<double> losses(const json& document) { return document.at("loss").get<std::vector<double>>(); }

std::vector<double> numbers_of(const std::string& npy) {
  constexpr std::size_t kHeader = 128;
  const std::string bytes = read_file(npy);
  REQUIRE(bytes.size() > kHeader);
  std::vector<float> values((bytes.size() - kHeader) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + kHeader, values.size() * sizeof(float));
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("fifty steps of training in bf16 on a GPU follow the processor's in f32 within 1 %", "[cuda]") {
  const std::vector<double> want = losses(document(orrery::testing::orrery(training("f32", 50))));
  std::vector<std::string> arguments = training("bf16", 50);
  arguments.insert(arguments.end(), {"--device", "cuda"});
  const std::vector<double> got = losses(document(on_gpu(arguments)));
  REQUIRE(want.size() == 50);
  REQUIRE(got.size() == 50);
  CHECK(want.back() < 0.9 * want.front());
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(0.01));
}

TEST_CASE("each way of using a GPU computes the same", "[cuda]") {
  const std::vector<double> want = losses(document(orrery::testing::orrery(training("f32", 4))));
  const char* flag = GENERATE("--graphs", "--plain-allocation", "--activities");
  std::vector<std::string> arguments = training("f32", 4);
  arguments.insert(arguments.end(), {"--device", "cuda", flag});
  const std::vector<double> got = losses(document(on_gpu(arguments)));
  REQUIRE(got.size() == 4);
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(1e-5));
}

TEST_CASE("logits of weights from a safetensors file agree with the processor's", "[cuda]") {
  const TemporaryFolder folder;
  const std::vector<std::string> common{"run", "llama_tiny_generate", "--tokens", "72,101,108,108,111,44", "--no-out"};
  const auto logits = [&](bool gpu) {
    std::vector<std::string> arguments = common;
    const std::string file = folder / (gpu ? "gpu.npy" : "host.npy");
    arguments.insert(arguments.end(), {"--logits", file});
    if (gpu) arguments.insert(arguments.end(), {"--device", "cuda"});
    const CommandResult r = gpu ? on_gpu(arguments) : orrery::testing::orrery(arguments);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return numbers_of(file);
  };
  CHECK(relative_distance(logits(true), logits(false)) < 1e-4);
}

TEST_CASE("validate predicts and measures on a GPU", "[cuda]") {
  const TemporaryFolder folder;
  const std::string grid = folder.file("grid.yaml", fmt::format(R"(plans:
  - name: train
    model: {}
    cluster: dgx_h100
    workload: {{train: {{batch: 1, sequence: 8, dtype: bf16}}}}
  - name: decode
    model: {}
    cluster: dgx_h100
    workload: {{generate: {{batch: 1, prompt: 4, tokens: 4, dtype: bf16}}}}
)",
                                                                kSmallGpt2, kSmallGpt2));
  const json v = document(on_gpu({"validate", "--grid", grid, "--json", "--no-out"}));
  REQUIRE(v.at("plans").size() == 2);
  for (const json& p : v.at("plans")) {
    INFO(p.at("name"));
    CHECK(p.at("predicted") > 0);
    CHECK(p.at("measured") > 0);
    CHECK(p.at("peak_measured") == p.at("peak_predicted"));
    CHECK(!p.at("ops").empty());
  }
}
