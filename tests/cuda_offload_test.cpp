// SPDX-License-Identifier: Apache-2.0
// Steps whose tensors move between tiers on the cuda device: the same losses and weights as on the host.
#include <catch2/catch.hpp>

#include "runtime/cuda/gpu_executor.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/network_testing.hpp"
#include "tests/offload_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Model small_gpt2() { return gpt2_of({.layers = 2, .positions = 16}); }

struct Offload {
  const char *strategy, *options;
};

}  // namespace

TEST_CASE("each way of keeping a model in little memory trains on the cuda device as on the host", "[cuda]") {
  const Offload way = GENERATE(
      Offload{"zero-offload", "{}"}, Offload{"zero-offload", "{delayed: true}"}, Offload{"zero-infinity", "{}"},
      Offload{"zero-infinity", "{weights: disk, gradients: disk, states: disk}"},
      Offload{"patrickstar", "{device_memory: 64 MiB}"},
      Offload{"gemini", "{min_chunk: 2000, search_range: 4000, search_interval: 16}"},
      Offload{"elixir", "{driver: 0 B, least_chunk: 1 kB, device_memory: 128 MiB}"},
      Offload{"angel-ptm", "{device_memory: 64 MiB, states: disk}"}, Offload{"activation-offload", "{}"});
  INFO(way.strategy << " " << way.options);
  const Model model = small_gpt2();
  TrainOptions o = offload_options();
  o.batch = 2;
  o.dtype = Precision::F32;
  const auto strategy = strategy_of(way.strategy, way.options);
  const auto host = make_host_executor();
  const OffloadRun want = train_timed(model, o, strategy->train_step(model, o, &host_workspaces()), *host);
  const auto device = make_gpu_executor(gpu_under_test());
  const Plan lowered = strategy->train_step(model, o, &gpu_workspaces());
  const std::vector<Transfers> planned = planned_transfers(lowered);
  const OffloadRun got = train_timed(model, o, lowered, *device);
  REQUIRE(got.trained.losses.size() == want.trained.losses.size());
  for (std::size_t i = 0; i < want.trained.losses.size(); ++i)
    CHECK(got.trained.losses[i] == Approx(want.trained.losses[i]).epsilon(1e-5));
  CHECK(worst_difference(got.trained.weights, want.trained.weights) < 1e-4);
  REQUIRE(got.timeline.transfers.size() == planned.size());
  for (std::size_t i = 0; i < planned.size(); ++i) {
    CHECK(got.timeline.transfers[i].moves == o.steps * planned[i].moves);
    CHECK(got.timeline.transfers[i].bytes == o.steps * planned[i].bytes);
  }
}
