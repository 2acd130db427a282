// SPDX-License-Identifier: Apache-2.0
// Ranks of one plan in several processes of this computer, whose GPUs are emulated: every collective and messages both
// ways give what they give in one process.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

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
  const auto ends = in_processes(processes, [&, ranks = ranks, processes = processes](int p) {
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

TEST_CASE("graphs of several processes repeat their collectives", "[cuda][peers]") {
  const Trial trial = collectives(4);
  const auto alone = make_gpu_executor(std::make_shared<EmulatedGpu>());
  const std::string want = run(trial, *alone), at = free_place();
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(2, [&](int p) {
    const auto gpu =
        std::make_shared<EmulatedGpu>(EmulationOptions{.devices = 2, .seed = std::uint64_t(p), .mailbox = mailbox});
    const auto peers = std::make_shared<Peers>(MeetingPlace{p, 2, at});
    const auto executor = make_gpu_executor(gpu, {}, {.graphs = true, .peers = peers});
    const std::string got = run(trial, *executor);
    return fmt::format("{} captures, {} launches, {}", gpu->captures(), gpu->graph_launches(), got);
  });
  for (const std::string& end : ends) CHECK(end == "1 captures, 2 launches, " + want);
}

TEST_CASE("a graph that one process has to capture anew is captured anew by all", "[cuda][peers]") {
  // The calls of attention change when the keys are shared out, from 256 on; the second stage only receives.
  constexpr std::int64_t kKeys = 300, kDim = 4;
  PlanBuilder b{"decode", Mesh{{{"pp", 2}}}};
  const Bytes bytes = size_of(DType::F32, kDim);
  const auto tensor = [&](const char* name, std::int64_t rows) {
    return b.tensor(name, Shape{1, rows, 1, kDim}, {.persistent = true});
  };
  b.begin_class("first", {{0, 1}});
  AttentionShape s{.q = 1, .kv = Extent{0, Symbol::Context}, .qk_dim = kDim, .v_dim = kDim};
  const TensorId q = tensor("q", 1), k = tensor("k", kKeys), v = tensor("v", kKeys), o = tensor("o", 1);
  b.add("attention", AttentionForward{s, false}, {reads(q), reads(k), reads(v), writes(o)});
  b.add("send", Send{{0, 1}, 0, bytes}, {reads(o)}, Stream::Comm);
  b.begin_class("second", {{1, 2}});
  const TensorId got = tensor("got", 1);
  b.add("receive", Recv{{0, -1}, 0, bytes}, {writes(got)}, Stream::Comm);
  const Plan plan = b.take(&gpu_workspaces());

  const auto decode = [&](Executor& executor) {
    executor.prepare(plan);
    std::vector<double> numbers(kKeys * kDim);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(double(i));
    executor.write(plan, q, RankId{0}, std::vector<double>{1, 2, -1, 0.5});
    executor.write(plan, k, RankId{0}, numbers);
    executor.write(plan, v, RankId{0}, numbers);
    std::string text;
    for (const std::int64_t keys : {3, 4, 255, 256, 299, 3}) {
      Bindings bindings;
      bindings[Symbol::Context] = keys;
      executor.execute(plan, bindings);
      for (const double x : executor.fetch(plan, got, RankId{1})) text += fmt::format("{:.9g} ", x);
    }
    return text;
  };
  const auto alone = make_gpu_executor(std::make_shared<EmulatedGpu>());
  const std::string want = decode(*alone), at = free_place();
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(2, [&](int p) {
    const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.mailbox = mailbox});
    const auto executor =
        make_gpu_executor(gpu, {}, {.graphs = true, .peers = std::make_shared<Peers>(MeetingPlace{p, 2, at})});
    const std::string text = decode(*executor);
    return fmt::format("{} captures, {}", gpu->captures(), text);
  });
  for (const std::string& end : ends) CHECK(end == "3 captures, " + want);
}

namespace {

/// Ranks send one another rows of three numbers, in two parts, how many only the tensors say.
struct RowTrial {
  static constexpr std::int64_t kParts = 2, kRow = 3, kRows = 12;
  Plan plan;
  TensorId in, sent, awaited, out;
};

RowTrial uneven_rows(std::int64_t ranks) {
  PlanBuilder b{"rows", Mesh{{{"ep", ranks}}}};
  const std::int8_t axis = 0;
  const auto tensor = [&](const char* name, const Shape& shape, DType t) {
    return b.tensor(name, shape, {.dtype = t, .persistent = true});
  };
  RowTrial t;
  const Shape rows{RowTrial::kRows, RowTrial::kRow}, spans{ranks, RowTrial::kParts, 2};
  t.in = tensor("in", rows, DType::F32);
  t.sent = tensor("sent", spans, DType::I32);
  t.awaited = tensor("awaited", spans, DType::I32);
  t.out = tensor("out", rows, DType::F32);
  b.add("exchange",
        Collective{.kind = CollectiveKind::AllToAll,
                   .group = b.group_over({&axis, 1}),
                   .bytes = size_of(DType::F32, RowTrial::kRows * RowTrial::kRow),
                   .row = RowTrial::kRow},
        {reads(t.in), reads(t.sent), reads(t.awaited), writes(t.out)}, Stream::Comm);
  t.plan = b.take(&gpu_workspaces());
  return t;
}

/// Part p of what `from` sends `to`: none, one or two rows.
std::int64_t rows_of(std::size_t from, std::size_t to, std::size_t part) {
  return std::int64_t(from + 2 * to + part) % 3;
}

using Spans = std::vector<std::int32_t>;

/// Where the parts of a rank lie: side by side, by peer.
Spans spans_of(std::size_t ranks, const std::function<std::int64_t(std::size_t peer, std::size_t part)>& rows) {
  Spans spans;
  std::int64_t at = 0;
  for (std::size_t peer = 0; peer < ranks; ++peer)
    for (std::size_t part = 0; part < std::size_t(RowTrial::kParts); ++part) {
      spans.push_back(std::int32_t(at));
      spans.push_back(std::int32_t(at += rows(peer, part)));
    }
  return spans;
}

using ChangeSpans = std::function<void(std::size_t rank, Spans& sent, Spans& awaited)>;

std::string exchange(
    const RowTrial& t, Executor& executor, const ChangeSpans& change = [](auto, auto&, auto&) {}) {
  const auto ranks = std::size_t(t.plan.mesh.size());
  executor.prepare(t.plan);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<double> mine;
    for (std::int64_t i = 0; i < RowTrial::kRows * RowTrial::kRow; ++i) mine.push_back(double(1000 * r) + double(i));
    Spans sent = spans_of(ranks, [&](std::size_t peer, std::size_t p) { return rows_of(r, peer, p); });
    Spans awaited = spans_of(ranks, [&](std::size_t peer, std::size_t p) { return rows_of(peer, r, p); });
    change(r, sent, awaited);
    executor.write(t.plan, t.in, RankId{r}, std::span<const double>{mine});
    executor.write(t.plan, t.sent, RankId{r}, std::span<const std::int32_t>{sent});
    executor.write(t.plan, t.awaited, RankId{r}, std::span<const std::int32_t>{awaited});
    executor.write(t.plan, t.out, RankId{r}, std::vector<double>(mine.size(), -1));
  }
  executor.execute(t.plan, {});
  std::string text;
  for (std::size_t r = 0; r < ranks; ++r)
    for (const double x : executor.fetch(t.plan, t.out, RankId{r})) text += fmt::format("{} ", x);
  return text;
}

std::vector<std::string> exchange_in_processes(const RowTrial& t, int processes, const ChangeSpans& change) {
  const std::string at = free_place();
  const int ranks = int(t.plan.mesh.size());
  const auto mailbox = std::make_shared<SharedMailbox>();
  return in_processes(processes, [&](int p) {
    const auto gpu = std::make_shared<EmulatedGpu>(
        EmulationOptions{.devices = ranks / processes, .seed = std::uint64_t(p), .mailbox = mailbox});
    std::string end;
    {
      const auto executor =
          make_gpu_executor(gpu, {}, {.peers = std::make_shared<Peers>(MeetingPlace{p, processes, at})});
      try {
        end = exchange(t, *executor, change);
      } catch (const DeviceError& e) {
        end = e.what();
      }
    }
    std::int64_t left = std::int64_t(gpu->streams());
    for (int d = 0; d < gpu->num_devices(); ++d) left += gpu->bytes_in_use(d);
    return left == 0 ? end : "something was not given back";
  });
}

}  // namespace

TEST_CASE("a process that is gone while the others replay a graph ends them", "[cuda][peers]") {
  const Trial trial = collectives(2);
  const std::string at = free_place();
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(2, [&](int p) {
    EmulationOptions options{.mailbox = mailbox};
    // The first execution is captured; in the second its graph waits for one that never comes.
    if (p == 1) options.fails_at = "graph", options.fails_after = 1;
    const auto gpu = std::make_shared<EmulatedGpu>(options);
    std::string problem;
    try {
      const auto peers = std::make_shared<Peers>(MeetingPlace{p, 2, at});
      const auto executor = make_gpu_executor(gpu, {}, {.graphs = true, .peers = peers});
      return run(trial, *executor);
    } catch (const DeviceError& e) {
      problem = e.what();
    }
    return fmt::format("{}; {} bytes, {} streams", problem, gpu->bytes_in_use(0), gpu->streams());
  });
  CHECK(ends[0] == "process 1 of 2 is gone: all of them end; 0 bytes, 0 streams");
  CHECK(ends[1] == "graph: an error that the test asked for; 0 bytes, 0 streams");
}

TEST_CASE("rows whose number only the devices know reach ranks of other processes", "[cuda][peers]") {
  const auto [ranks, processes] = GENERATE(table<int, int>({{2, 2}, {4, 4}, {4, 2}}));
  INFO(ranks << " ranks in " << processes << " processes");
  const RowTrial t = uneven_rows(ranks);
  const auto alone = make_gpu_executor(std::make_shared<EmulatedGpu>());
  const std::string want = exchange(t, *alone);
  // Of 2 ranks, rank 0 keeps (0 + 0 + 1) % 3 = 1 row and gets 1 and 2 rows of rank 1.
  if (ranks == 2) CHECK_THAT(want, Catch::StartsWith("0 1 2 1000 1001 1002 1003 1004 1005 1006 1007 1008 -1 "));
  for (const std::string& end : exchange_in_processes(t, processes, [](auto, auto&, auto&) {})) CHECK(end == want);
}

TEST_CASE("rows that do not fit what is awaited are an error, not a wait for ever", "[cuda][peers]") {
  const RowTrial t = uneven_rows(2);
  const auto less = exchange_in_processes(t, 2, [](std::size_t rank, Spans&, Spans& awaited) {
    if (rank == 0) awaited.back() -= 1;  // of the last part of rank 1: (1 + 1) % 3 = 2 rows
  });
  CHECK(less[0] == "op 0 'exchange': a member sends 2 rows, 1 are awaited");
  CHECK(less[1] == "process 0 of 2 is gone: all of them end");
  const auto outside = exchange_in_processes(t, 2, [](std::size_t rank, Spans& sent, Spans& awaited) {
    const auto shift = [](Spans& spans) { spans[spans.size() - 2] += 11, spans.back() += 11; };
    if (rank == 1) shift(sent), shift(awaited);
  });
  CHECK_THAT(outside[1], Catch::StartsWith("op 0 'exchange': rows ") && Catch::EndsWith("of 12 are to be exchanged"));
  CHECK(outside[0] == "process 1 of 2 is gone: all of them end");
}

TEST_CASE("a graph does not wait for the host to read how many rows there are", "[cuda][peers]") {
  const RowTrial t = uneven_rows(2);
  const std::string at = free_place();
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(2, [&](int p) {
    const auto executor = make_gpu_executor(std::make_shared<EmulatedGpu>(EmulationOptions{.mailbox = mailbox}), {},
                                            {.graphs = true, .peers = std::make_shared<Peers>(MeetingPlace{p, 2, at})});
    executor->prepare(t.plan);
    return std::string{"prepared"};
  });
  for (const std::string& end : ends)
    CHECK_THAT(end, Catch::Contains("op 'exchange' of plan 'rows' exchanges rows whose number the host has to read"));
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
