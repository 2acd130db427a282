// SPDX-License-Identifier: Apache-2.0
// Whole networks on the cuda device.
#include <catch2/catch.hpp>

#include "runtime/cuda/gpu_executor.hpp"
#include "sim/base/yaml.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/network_testing.hpp"
#include "tests/small_models.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Model gpt2() { return gpt2_of({.hidden = 32, .layers = 1, .vocab = 64, .positions = 16}); }
Model llama() { return llama_of({.hidden = 32, .inner = 48, .layers = 1, .heads = 4, .vocab = 64}); }

TrainOptions few_steps() {
  TrainOptions o;
  o.batch = 2;
  o.sequence = 7;
  o.steps = 4;
  o.optimizer.rate = 1e-2;
  return o;
}

}  // namespace

TEST_CASE("training on the cuda device follows training on the host", "[cuda]") {
  const Model model = GENERATE(gpt2(), llama());
  TrainOptions o = few_steps();
  o.microbatches = 2;
  const auto host = make_host_executor();
  const auto want = losses_of(model, o, host_workspaces(), *host);
  REQUIRE(want.size() == 4);

  const auto close = [&](Precision precision, double tolerance) {
    o.dtype = precision;
    const auto device = make_gpu_executor(gpu_under_test());
    const auto got = losses_of(model, o, gpu_workspaces(), *device);
    REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(tolerance));
  };
  close(Precision::F32, 1e-5);
  close(Precision::BF16, 1e-2);
  o.optimizer.widen_gradients = true;
  close(Precision::BF16, 1e-2);
  o.optimizer.widen_gradients = false;
  o.optimizer.narrow_moments = true;
  close(Precision::BF16, 1e-2);
}

TEST_CASE("training with products in 8 bits follows that of the host, which casts alike", "[cuda]") {
  if (gpu_under_test()->info(0).capability < 89) return;  // has no such tensor cores
  const Model model = GENERATE(gpt2(), llama());
  TrainOptions o = few_steps();
  o.narrow = Narrow::EightBits;
  o.keep_narrow = GENERATE(false, true);
  const auto host = make_host_executor();
  const auto want = losses_of(model, o, host_workspaces(), *host);
  o.dtype = Precision::BF16;
  const auto device = make_gpu_executor(gpu_under_test());
  const auto got = losses_of(model, o, gpu_workspaces(), *device);
  REQUIRE(got.size() == 4);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(1e-2));
}
