// SPDX-License-Identifier: Apache-2.0
// Records of a device joined to ops.
#include <catch2/catch.hpp>

#include "runtime/cuda/activities.hpp"
#include "runtime/cuda/gpu_executor.hpp"
#include "tests/emulated_gpu.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("a span reaches from the first record of an op to its last, by the clock of the host", "[cuda]") {
  // The device's clock is 1,000,000 ahead and runs 1 in 1000 too fast.
  ActivityLog log;
  log.first = {1'000'000, 0};
  log.last = {1'000'000 + 1'001'000, 1'000'000};
  log.activities = {{2, 1'200'200, 1'300'300, Activity::Kind::Kernel},
                    {1, 1'000'000, 1'100'100, Activity::Kind::Copy},
                    {2, 1'400'400, 1'500'500, Activity::Kind::Kernel},
                    {0, 1'000'000, 2'000'000, Activity::Kind::Fill},
                    {9, 1'000'000, 2'000'000, Activity::Kind::Kernel}};
  const std::vector<MarkedOp> marked{{OpId{4}, 0}, {OpId{5}, 0}, {OpId{6}, 0}, {OpId{7}, 1}};
  const Joined joined = join_activities(log, marked);
  REQUIRE(joined.spans.size() == 4);
  CHECK(joined.spans[0].start_ns == 0);
  CHECK(joined.spans[0].end_ns == 100'000);
  CHECK(joined.spans[1].start_ns == 200'000);
  CHECK(joined.spans[1].end_ns == 500'000);
  CHECK(joined.spans[1].is_measured);
  CHECK_FALSE(joined.spans[2].is_measured);  // nothing ran for it: it ends where the op before it did
  CHECK(joined.spans[2].start_ns == 500'000);
  CHECK(joined.spans[2].end_ns == 500'000);
  CHECK(joined.spans[3].start_ns == 0);  // on another lane nothing was before
  CHECK(joined.unknown == 1);
}

TEST_CASE("records give the timeline that events give", "[cuda]") {
  PlanBuilder b{"trial"};
  const TensorId x = b.tensor("x", Shape{8}, {.persistent = true}), y = b.tensor("y", Shape{8}, {.persistent = true});
  b.add("fill", Fill{.elements = 8, .value = 3}, {writes(x)});
  b.add("alloc", CopyRows{1, 8}, {reads(x), writes(y)});
  const Plan plan = b.take(&gpu_workspaces());
  const bool records = GENERATE(false, true);
  const auto gpu = std::make_shared<EmulatedGpu>();
  GpuOptions options;
  if (records) options.activities = gpu->activities();
  const auto executor = make_gpu_executor(gpu, {}, options);
  executor->execute(plan, {});
  executor->execute(plan, {});
  const Timeline t = executor->take();
  REQUIRE(t.spans.size() == 4);
  for (const Span& s : t.spans) CHECK(s.end_ps - s.start_ps == 1'000'000);  // each op is one task of a microsecond
  CHECK(t.spans[1].start_ps == t.spans[0].end_ps);
  CHECK(t.spans[0].op == OpId{0});
  CHECK(t.spans[3].instance == 1);
}

TEST_CASE("records that get lost are an error that counts them", "[cuda]") {
  PlanBuilder b{"trial"};
  b.add("fill", Fill{.elements = 8, .value = 3}, {writes(b.tensor("x", Shape{8}, {.persistent = true}))});
  const Plan plan = b.take(&gpu_workspaces());
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.drops = 17});
  const auto executor = make_gpu_executor(gpu, {}, {.activities = gpu->activities()});
  CHECK_THROWS_WITH(executor->execute(plan, {}),
                    "17 records of plan 'trial' were dropped, its spans would be too short: take them from events, "
                    "without --activities");
}
