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

TEST_CASE("waits and memory are counted for the op that caused them, and are no part of its span", "[cuda]") {
  PlanBuilder b{"trial"};
  const TensorId x = b.tensor("x", Shape{8}, {.persistent = true});
  b.add("first", Fill{.elements = 8, .value = 3}, {writes(x)});
  b.add("second", Fill{.elements = 8, .value = 4}, {writes(x)});
  const Plan plan = b.take(&gpu_workspaces());
  using Kind = Activity::Kind;
  ActivityLog log;
  log.activities = {
      {1, 100, 200, Kind::Kernel},     {1, 50, 80, Kind::HostWait},         {1, 0, 0, Kind::StreamWait},
      {2, 300, 400, Kind::Copy, 64},   {2, 10, 10, Kind::Allocation, 4096}, {2, 900, 900, Kind::Release, 96},
      {0, 1000, 1500, Kind::HostWait}, {7, 0, 0, Kind::Allocation, 8},      {0, 0, 5, Kind::Fill, 32}};
  log.last = {1'000'000, 1'000'000};
  const std::vector<MarkedOp> marked{{OpId{0}, 0}, {OpId{1}, 0}};
  ActivityAccount account;
  account.add(log, marked, plan);
  account.add({}, marked, plan);
  CHECK(account.kernels == 1);
  CHECK(account.copies == 1);
  CHECK(account.copied == 64);
  CHECK(account.fills == 1);
  CHECK(account.filled == 32);
  CHECK(account.outside.waits == 1);
  CHECK(account.outside.wait_ns == 500);
  CHECK(account.outside.allocated == 8);  // of a mark that is none
  CHECK(account.of_op.at("first").waits == 1);
  CHECK(account.of_op.at("first").wait_ns == 30);
  CHECK(account.of_op.at("first").stream_waits == 1);
  CHECK(account.of_op.at("second").allocations == 1);
  CHECK(account.of_op.at("second").allocated == 4096);
  CHECK(account.of_op.at("second").released == 96);
  const Joined joined = join_activities(log, marked);
  CHECK(joined.spans[0].start_ns == 100);  // not 50, when the host began to wait
  CHECK(joined.spans[1].end_ns == 400);
  CHECK(joined.unknown == 0);
}

TEST_CASE("memory that an op takes is asked for under its mark", "[cuda]") {
  PlanBuilder b{"trial"};
  const TensorId x = b.tensor("x", Shape{1024}, {}), y = b.tensor("y", Shape{1024}, {.persistent = true});
  b.add("fill", Fill{.elements = 1024, .value = 3}, {writes(x)});
  b.add("copy", CopyRows{1, 1024}, {reads(x), writes(y)});
  const Plan plan = b.take(&gpu_workspaces());
  const auto gpu = std::make_shared<EmulatedGpu>();
  const auto account = std::make_shared<ActivityAccount>();
  const auto executor = make_gpu_executor(gpu, {}, {.activities = gpu->activities(), .account = account});
  executor->execute(plan, {});
  CHECK(account->of_op.at("fill").allocated >= 4096);
  CHECK(account->outside.waits > 0);
  CHECK(account->kernels == 1);
  CHECK(account->copies == 1);
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
