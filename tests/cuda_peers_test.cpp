// SPDX-License-Identifier: Apache-2.0
// Ranks of one plan in several processes of this computer, whose GPUs are emulated: every collective and messages both
// ways give what they give in one process.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "runtime/cuda/gpu_executor.hpp"
#include "runtime/peers.hpp"
#include "runtime/sockets.hpp"
#include "sim/base/error.hpp"
#include "tests/emulated_gpu.hpp"
#include "tests/forked.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::int64_t kElements = 8;

/// Each rank has numbers of its own; what they become is added up rank by rank.
struct Trial {
  Plan plan;
  TensorId in, out;
};

Trial collectives(std::int64_t ranks) {
  PlanBuilder b{"trial", Mesh{{{"dp", ranks}}}};
  const std::int8_t axis = 0;
  const GroupId group = b.group_over({&axis, 1});
  const auto tensor = [&](const std::string& name, std::int64_t n) {
    return b.tensor(name, Shape{n}, {.persistent = true});
  };
  Trial t;
  t.in = tensor("in", kElements);
  t.out = tensor("out", kElements);
  const TensorId next = tensor("next", kElements), part = tensor("part", kElements / ranks);
  const auto exchange = [&](CollectiveKind kind, TensorId from, TensorId to, std::int32_t root = 0,
                            ReduceOp reduce = ReduceOp::Sum) {
    b.add(std::string{name_of(kind)},
          Collective{
              .kind = kind, .group = group, .root = root, .bytes = size_of(DType::F32, kElements), .reduce = reduce},
          {reads(from), writes(to)}, Stream::Comm);
  };
  exchange(CollectiveKind::Shift, t.in, next, 1);
  exchange(CollectiveKind::AllToAll, next, t.out);
  exchange(CollectiveKind::ReduceScatter, t.out, part);
  exchange(CollectiveKind::AllGather, part, next);
  b.add("sum", Add{1, kElements}, {reads(next), reads(t.in), writes(t.out)});
  exchange(CollectiveKind::AllReduce, t.out, next, 0, ReduceOp::Max);
  b.add("sum", Add{1, kElements}, {reads(next), reads(t.in), writes(t.out)});
  exchange(CollectiveKind::Broadcast, t.out, next, 1);
  b.add("sum", Add{1, kElements}, {reads(next), reads(t.in), writes(t.out)});
  b.add("clear", Fill{.elements = kElements, .value = 2}, {writes(next)});
  exchange(CollectiveKind::Reduce, t.out, next, 1);
  b.add("sum", Add{1, kElements}, {reads(next), reads(t.in), writes(t.out)});
  t.plan = b.take(&gpu_workspaces());
  return t;
}

/// What all ranks hold at the end, and how many spans the timeline has.
std::string run(const Trial& t, Executor& executor) {
  const auto ranks = static_cast<std::size_t>(t.plan.mesh.size());
  executor.prepare(t.plan);
  for (int step = 0; step < 2; ++step) {
    for (std::size_t r = 0; r < ranks; ++r) {
      std::vector<double> mine;
      for (std::int64_t i = 0; i < kElements; ++i) mine.push_back(double(r * 100) + double(i * (step + 1)));
      executor.write(t.plan, t.in, RankId{r}, std::span<const double>{mine});
    }
    executor.execute(t.plan, {});
  }
  std::string text;
  for (std::size_t r = 0; r < ranks; ++r)
    for (const double x : executor.fetch(t.plan, t.out, RankId{r})) text += fmt::format("{} ", x);
  const Timeline timeline = executor.take();
  return text + fmt::format("spans {} ranks {} ends {} peaks {}", timeline.spans.size(), timeline.num_ranks,
                            timeline.instance_ends_ps.size(), timeline.peaks.size());
}

std::string free_place() { return fmt::format("127.0.0.1:{}", port_of(listen_on(0))); }

}  // namespace

TEST_CASE("collectives between processes give what they give in one", "[cuda][peers]") {
  const auto [ranks, processes] = GENERATE(table<int, int>({{2, 2}, {4, 4}, {4, 2}}));
  INFO(ranks << " ranks in " << processes << " processes");
  const Trial trial = collectives(ranks);
  const auto alone = make_gpu_executor(std::make_shared<EmulatedGpu>());
  const std::string want = run(trial, *alone), at = free_place();
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(processes, [&](int p) {
    const auto peers = std::make_shared<Peers>(MeetingPlace{p, processes, at});
    const auto gpu = std::make_shared<EmulatedGpu>(
        EmulationOptions{.devices = ranks / processes, .seed = std::uint64_t(p), .mailbox = mailbox});
    const auto executor = make_gpu_executor(gpu, {}, {.peers = peers});
    return run(trial, *executor);
  });
  for (const std::string& end : ends) CHECK(end == want);
}

TEST_CASE("messages between processes pass one another", "[cuda][peers]") {
  PlanBuilder b{"messages", Mesh{{{"pp", 2}}}};
  const Bytes bytes = size_of(DType::F32, kElements);
  TensorId got[2], sent[2];
  for (const int stage : {0, 1}) {
    b.begin_class(fmt::format("stage{}", stage), {{stage, stage + 1}});
    const std::int8_t there = stage == 0 ? 1 : -1;
    sent[stage] = b.tensor(fmt::format("sent{}", stage), Shape{kElements}, {.persistent = true});
    got[stage] = b.tensor(fmt::format("got{}", stage), Shape{kElements}, {.persistent = true});
    b.add("send", Send{{0, there}, stage, bytes}, {reads(sent[stage])}, Stream::Comm);
    b.add("receive", Recv{{0, there}, 1 - stage, bytes}, {writes(got[stage])}, Stream::CopyIn);
  }
  const Plan plan = b.take(&gpu_workspaces());
  const std::string at = free_place();
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(2, [&](int p) {
    const auto peers = std::make_shared<Peers>(MeetingPlace{p, 2, at});
    const auto executor =
        make_gpu_executor(std::make_shared<EmulatedGpu>(EmulationOptions{.mailbox = mailbox}), {}, {.peers = peers});
    executor->prepare(plan);
    const std::vector<double> mine(kElements, 10.0 + p);
    executor->write(plan, sent[p], RankId{std::size_t(p)}, std::span<const double>{mine});
    executor->execute(plan, {});
    return fmt::format("{}", executor->read(plan, got[p], RankId{std::size_t(p)}).back());
  });
  CHECK(ends[0] == "11");
  CHECK(ends[1] == "10");
}

TEST_CASE("a process that fails during a collective ends the others, who give back what they have", "[cuda][peers]") {
  const Trial trial = collectives(2);
  const std::string at = free_place();
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(2, [&](int p) {
    EmulationOptions options{.mailbox = mailbox};
    if (p == 1) options.fails_at = "collective", options.fails_after = 3;
    const auto gpu = std::make_shared<EmulatedGpu>(options);
    std::string problem;
    try {
      const auto executor = make_gpu_executor(gpu, {}, {.peers = std::make_shared<Peers>(MeetingPlace{p, 2, at})});
      return run(trial, *executor);
    } catch (const DeviceError& e) {
      problem = e.what();
    }
    return fmt::format("{}; {} bytes, {} streams", problem, gpu->bytes_in_use(0), gpu->streams());
  });
  CHECK(ends[0] == "process 1 of 2 is gone: all of them end; 0 bytes, 0 streams");
  CHECK(ends[1] == "collective: an error that the test asked for; 0 bytes, 0 streams");
}
