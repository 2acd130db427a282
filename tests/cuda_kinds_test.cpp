// SPDX-License-Identifier: Apache-2.0
// The page of runtime/cuda lists the kinds that the device runs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "runtime/cuda/families.hpp"
#include "runtime/cuda/gpu_executor.hpp"
#include "sim/base/error.hpp"
#include "sim/plan/work.hpp"
#include "tests/emulated_gpu.hpp"

TEST_CASE("the page lists the kinds of op that a cuda device runs", "[cuda]") {
  std::ifstream in{std::string{ORRERY_SOURCE_DIR} + "/runtime/cuda/README.md"};
  std::stringstream page;
  page << in.rdbuf();
  const std::string text = page.str(), begin = "<!-- kinds -->\n";
  const auto first = text.find(begin), last = text.find("\n<!-- /kinds -->");
  REQUIRE(first != std::string::npos);
  REQUIRE(last != std::string::npos);
  std::istringstream listed{text.substr(first + begin.size(), last - first - begin.size())};
  std::vector<std::string> names, want;
  for (std::string word; listed >> word;) names.push_back(word);
  for (const std::size_t kind : orrery::gpu_kinds()) want.emplace_back(orrery::kind_name(kind));
  CHECK(names == want);
}

TEST_CASE("every kind of op has a kernel on a cuda device, but for the maps of cached embedding tables", "[cuda]") {
  std::vector<std::string> missing;
  const std::vector<std::size_t> kinds = orrery::gpu_kinds();
  for (std::size_t kind = 0; kind < orrery::kNumKinds; ++kind)
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) missing.emplace_back(orrery::kind_name(kind));
  CHECK(missing == std::vector<std::string>{"admit_rows"});
}

TEST_CASE("products in 8 bits are refused where tensor cores or shapes cannot", "[cuda]") {
  using namespace orrery;
  const auto refusal = [](int capability, std::int64_t n, DType dtype) -> std::string {
    PlanBuilder b{"trial"};
    const auto operand = [&](const char* name, std::int64_t rows, std::int64_t cols) {
      return b.tensor(name, Shape{rows, cols}, {.dtype = dtype, .persistent = true});
    };
    b.add("product", Gemm{.m = 4, .n = n, .k = 16, .narrow = Narrow::EightBits, .dtype = dtype},
          {reads(operand("a", 4, 16)), reads(operand("b", 16, n)), writes(operand("c", 4, n))});
    const Plan plan = b.take(&gpu_workspaces());
    const auto gpu = std::make_shared<testing::EmulatedGpu>(testing::EmulationOptions{.capability = capability});
    const auto executor = make_gpu_executor(gpu);
    try {
      executor->prepare(plan);
    } catch (const UserError& e) {
      return e.diagnostics().front().message;
    }
    return {};
  };
  CHECK(refusal(90, 16, DType::BF16).empty());
  CHECK(refusal(80, 16, DType::BF16) ==
        "op 'product' of plan 'trial' multiplies in 8 bits, which compute capability 8.0 cannot");
  CHECK_THAT(refusal(90, 9, DType::BF16),
             Catch::StartsWith("op 'product' of plan 'trial' cannot run on a cuda device"));
  CHECK_THAT(refusal(90, 16, DType::F32),
             Catch::StartsWith("op 'product' of plan 'trial' cannot run on a cuda device"));
}
