// SPDX-License-Identifier: Apache-2.0
// Several ranks and streams in one process: collectives, messages, order, and what happens when one of them fails.
#include <catch2/catch.hpp>

#include "runtime/executor.hpp"
#include "runtime/whole_arrays.hpp"
#include "sim/base/error.hpp"

using namespace orrery;

namespace {

using List = std::vector<double>;

/// A plan of n ranks with one op over all of them, from `in` to `out`.
struct Exchange {
  explicit Exchange(std::int64_t ranks) : n{ranks}, builder{"exchange", Mesh{{{"r", ranks}}}} {
    builder.begin_class("all", {{0, ranks}});
    group = builder.group({.name = "all", .axes = {0}, .only = {{}}});
  }
  TensorId tensor(std::string_view name, std::int64_t elements) {
    return builder.tensor(name, Shape{elements}, {.dtype = DType::F64, .persistent = true});
  }
  void run(const HostOptions& options = {}, int times = 20) {
    plan = builder.take(&host_workspaces());
    executor = make_host_executor(options);
    executor->prepare(plan);
    write_constants(*executor, plan);
    // Rank r holds r·100, r·100 + 1, …
    for (std::int64_t r = 0; r < n; ++r) {
      List values;
      for (std::int64_t i = 0; i < plan.shape(in).elements(); ++i) values.push_back(static_cast<double>(r * 100 + i));
      executor->write(plan, in, RankId{static_cast<std::size_t>(r)}, values);
    }
    for (int i = 0; i < times; ++i) executor->execute(plan, {});
  }
  List result(TensorId t, std::int64_t rank) { return executor->read(plan, t, RankId{static_cast<std::size_t>(rank)}); }

  std::int64_t n;
  PlanBuilder builder;
  GroupId group;
  TensorId in, out;
  Plan plan;
  std::unique_ptr<Executor> executor;
};

Collective collective(CollectiveKind kind, GroupId group, std::int64_t elements, std::int32_t root = 0) {
  return {.kind = kind, .group = group, .root = root, .bytes = size_of(DType::F64, elements), .dtype = DType::F64};
}

}  // namespace

TEST_CASE("collectives move and add what their names say", "[runtime]") {
  const std::int64_t n = GENERATE(1, 2, 3, 4);
  const CollectiveKind kind =
      GENERATE(CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
               CollectiveKind::AllToAll, CollectiveKind::Broadcast, CollectiveKind::Reduce, CollectiveKind::Shift);
  CAPTURE(n, name_of(kind));
  const std::int64_t in_elements = kind == CollectiveKind::AllGather ? 5 : 5 * n,
                     out_elements = kind == CollectiveKind::ReduceScatter ? 5 : 5 * n;
  const auto root = static_cast<std::int32_t>(n - 1);
  Exchange x{n};
  x.in = x.tensor("in", in_elements);
  x.out = x.tensor("out", out_elements);
  x.builder.add("exchange", collective(kind, x.group, 5 * n, root), {reads(x.in), writes(x.out)}, Stream::Comm);
  x.run();
  const double ranks = static_cast<double>(n), sum = 100 * ranks * (ranks - 1) / 2;  // Σ r·100
  for (std::int64_t me = 0; me < n; ++me)
    for (std::int64_t i = 0; i < out_elements; ++i) {
      const double at = static_cast<double>(i), part = static_cast<double>(i / 5), inner = static_cast<double>(i % 5),
                   rank = static_cast<double>(me);
      double want = 0;
      if (kind == CollectiveKind::AllReduce) want = sum + ranks * at;
      if (kind == CollectiveKind::AllGather) want = part * 100 + inner;
      if (kind == CollectiveKind::ReduceScatter) want = sum + ranks * (rank * 5 + at);
      if (kind == CollectiveKind::AllToAll) want = part * 100 + rank * 5 + inner;
      if (kind == CollectiveKind::Broadcast) want = (ranks - 1) * 100 + at;
      if (kind == CollectiveKind::Shift) want = static_cast<double>((me + 1) % n) * 100 + at;  // n − 1 forward, 1 back
      if (kind == CollectiveKind::Reduce) want = me == root ? sum + ranks * at : 0;
      CHECK(x.result(x.out, me)[static_cast<std::size_t>(i)] == want);
    }
}

TEST_CASE("each algorithm of a collective gives every rank the same sums", "[runtime]") {
  const std::int64_t n = GENERATE(2, 5, 8, 16);
  const CollectiveAlgorithm algorithm =
      GENERATE(CollectiveAlgorithm::Ring, CollectiveAlgorithm::Tree, CollectiveAlgorithm::DoubleTree,
               CollectiveAlgorithm::Halving, CollectiveAlgorithm::Hierarchical, CollectiveAlgorithm::Direct);
  const bool in_place = GENERATE(false, true);
  CAPTURE(n, name_of(algorithm), in_place);
  const std::int64_t elements = 200'003;  // 1.6 MB: several pieces, uneven chunks
  Exchange x{n};
  x.in = x.tensor("in", elements);
  x.out = in_place ? x.in : x.tensor("out", elements);
  const Collective work = collective(CollectiveKind::AllReduce, x.group, elements);
  if (in_place)
    x.builder.add("exchange", work, {updates(x.in)}, Stream::Comm);
  else
    x.builder.add("exchange", work, {reads(x.in), writes(x.out)}, Stream::Comm);
  x.run({.collectives = CollectiveChoice::all(algorithm), .ranks_per_node = n % 4 == 0 ? 4 : 1}, in_place ? 1 : 3);
  const double ranks = static_cast<double>(n);
  List want;
  for (std::int64_t i = 0; i < elements; ++i)
    want.push_back(100 * ranks * (ranks - 1) / 2 + ranks * static_cast<double>(i));
  for (std::int64_t me = 0; me < n; ++me) CHECK((x.result(x.out, me) == want));
}

TEST_CASE("all-to-alls and shifts in place do not lose what others still read", "[runtime]") {
  const std::int64_t n = GENERATE(2, 3, 8);
  const auto [kind, algorithm] =
      GENERATE(table<CollectiveKind, CollectiveAlgorithm>({{CollectiveKind::AllToAll, CollectiveAlgorithm::Direct},
                                                           {CollectiveKind::AllToAll, CollectiveAlgorithm::Bruck},
                                                           {CollectiveKind::Shift, CollectiveAlgorithm::Direct}}));
  CAPTURE(n, name_of(kind), name_of(algorithm));
  const std::int64_t part = 1000;
  Exchange x{n};
  x.in = x.out = x.tensor("in", part * n);
  x.builder.add("exchange", collective(kind, x.group, part * n, 1), {updates(x.in)}, Stream::Comm);
  x.run({.collectives = CollectiveChoice::all(algorithm)}, 1);
  std::int64_t wrong = 0;
  for (std::int64_t me = 0; me < n; ++me) {
    const List got = x.result(x.out, me);
    for (std::int64_t i = 0; i < part * n; ++i) {
      const std::int64_t from = kind == CollectiveKind::Shift ? (me + n - 1) % n : i / part,
                         at = kind == CollectiveKind::Shift ? i : me * part + i % part;
      wrong += got[static_cast<std::size_t>(i)] != static_cast<double>(from * 100 + at);
    }
  }
  CHECK(wrong == 0);
}

// Rank r keeps r + 1 rows and sends 2; what comes lies from row 1 on.
TEST_CASE("an all-to-all of rows moves as many as its spans say", "[runtime]") {
  const bool agree = GENERATE(true, false);
  Exchange x{2};
  x.in = x.tensor("in", 8);  // rows of 2
  x.out = x.tensor("out", 10);
  const auto spans = [&](std::string_view name, std::array<List, 2> values) {
    const TensorId t =
        x.builder.tensor(name, Shape{2, 2}, {.dtype = DType::I32, .role = TensorRole::Constant, .persistent = true});
    x.builder.plan().constants.push_back({t, ClassId{0}, [values](std::span<const std::int64_t> at) {
                                            return values[static_cast<std::size_t>(at[0])];
                                          }});
    return t;
  };
  const TensorId from = spans("from", {List{2, 3, 0, 2}, List{2, 4, 0, 2}}),
                 to = spans("to", {List{1, 2, 2, 4}, List{1, 3, 3, agree ? 5.0 : 4.0}});
  Collective c = collective(CollectiveKind::AllToAll, x.group, 8);
  c.row = 2;
  x.builder.add("exchange", c, {reads(x.in), reads(from), reads(to), writes(x.out)}, Stream::Comm);
  if (!agree) {
    CHECK_THROWS_WITH(x.run(), "op 0 'exchange' on rank 1: member 1 sends 2 rows, 1 are awaited");
    return;
  }
  x.run();
  CHECK(x.result(x.out, 0) == List{0, 0, 4, 5, 104, 105, 106, 107, 0, 0});
  CHECK(x.result(x.out, 1) == List{0, 0, 0, 1, 2, 3, 100, 101, 102, 103});
}

TEST_CASE("an all-reduce in place gives every rank the same bits", "[runtime]") {
  // 1 + 1e-16 + 1e-16 depends on the order of the sum; every rank must have taken the same.
  PlanBuilder b{"all_reduce", Mesh{{{"r", 4}}}};
  b.begin_class("all", {{0, 4}});
  const GroupId group = b.group({.name = "all", .axes = {0}, .only = {{}}});
  const TensorId x = b.tensor("x", Shape{1000}, {.dtype = DType::F64, .persistent = true});
  b.add("sum", collective(CollectiveKind::AllReduce, group, 1000), {updates(x)}, Stream::Comm);
  const Plan plan = b.take(nullptr);
  const auto e = make_host_executor();
  e->prepare(plan);
  for (std::size_t r = 0; r < 4; ++r) {
    List values(1000);
    for (std::size_t i = 0; i < 1000; ++i) values[i] = r == i % 4 ? 1.0 : 1e-16 * static_cast<double>(r + 1);
    e->write(plan, x, RankId{r}, values);
  }
  e->execute(plan, {});
  for (std::size_t r = 1; r < 4; ++r) CHECK(e->read(plan, x, RankId{r}) == e->read(plan, x, RankId{0}));
}

TEST_CASE("a message goes to the next stage and an answer comes back", "[runtime]") {
  PlanBuilder b{"messages", Mesh{{{"pp", 2}}}};
  const TensorSpec kept{.dtype = DType::F64, .persistent = true}, passing{.dtype = DType::F64};
  const Bytes bytes = size_of(DType::F64, 8);
  b.begin_class("first", {{0, 1}});
  const TensorId x = b.tensor("x", Shape{8}, kept), back = b.tensor("back", Shape{8}, kept);
  b.add("send", Send{{0, 1}, 1, bytes}, {reads(x)}, Stream::Comm);
  b.add("receive", Recv{{0, 1}, 2, bytes}, {writes(back)}, Stream::Comm);
  b.begin_class("second", {{1, 2}});
  const TensorId got = b.tensor("got", Shape{8}, passing), twice = b.tensor("twice", Shape{8}, passing);
  b.add("receive", Recv{{0, -1}, 1, bytes}, {writes(got)}, Stream::Comm);
  b.add("double", Add{1, 8, DType::F64}, {reads(got), reads(got), writes(twice)});
  b.add("send", Send{{0, -1}, 2, bytes}, {reads(twice)}, Stream::Comm);
  const Plan plan = b.take(nullptr);
  const auto e = make_host_executor();
  e->prepare(plan);
  e->write(plan, x, RankId{0}, List{1, 2, 3, 4, 5, 6, 7, 8});
  for (int i = 0; i < 50; ++i) e->execute(plan, {});
  CHECK(e->read(plan, back, RankId{0}) == List{2, 4, 6, 8, 10, 12, 14, 16});
  const Timeline t = e->take();
  CHECK(t.spans.size() == 250);
  CHECK(t.num_ranks == 2);
  CHECK(t.instance_ends_ps.size() == 50);
}

TEST_CASE("streams of a rank keep the order of their data", "[runtime]") {
  // x doubles on two streams in turn: 2^16 in the end, if no op ran before the one it depends on.
  PlanBuilder b{"streams"};
  const TensorSpec passing{.dtype = DType::F64};
  const TensorId x = b.tensor("x", Shape{64}, {.dtype = DType::F64, .persistent = true}),
                 y = b.tensor("y", Shape{64}, {.dtype = DType::F64, .persistent = true});
  TensorId last = x;
  for (int i = 0; i < 16; ++i) {
    const TensorId next = i == 15 ? y : b.tensor("step" + std::to_string(i), Shape{64}, passing);
    b.add("double", Add{1, 64, DType::F64}, {reads(last), reads(last), writes(next)},
          i % 2 == 0 ? Stream::Compute : Stream::CopyIn);
    last = next;
  }
  const Plan plan = b.take(nullptr);
  const auto e = make_host_executor();
  e->prepare(plan);
  e->write(plan, x, RankId{0}, List(64, 1.0));
  for (int i = 0; i < 50; ++i) e->execute(plan, {});
  CHECK(e->read(plan, y, RankId{0}) == List(64, 65536.0));
  const Timeline t = e->take();
  std::vector<std::pair<std::int64_t, std::int64_t>> of_op(16);
  for (const Span& s : t.spans)
    if (s.instance == 7) of_op[s.op.index()] = {s.start_ps, s.end_ps};
  for (std::size_t i = 1; i < 16; ++i) CHECK(of_op[i].first >= of_op[i - 1].second);
}

TEST_CASE("ops after host work that waits start when it has ended, on every stream", "[runtime]") {
  // Work that reads something waits for that; work that reads nothing waits for every op before it.
  for (const bool reads_x : {true, false}) {
    CAPTURE(reads_x);
    PlanBuilder b{"host"};
    const TensorSpec kept{.dtype = DType::F64, .persistent = true};
    const TensorId x = b.tensor("x", Shape{4}, kept), y = b.tensor("y", Shape{4}, kept),
                   z = b.tensor("z", Shape{4}, kept);
    b.add("x", Fill{4, 1, DType::F64}, {writes(x)});
    b.add("y", Fill{4, 2, DType::F64}, {writes(y)}, Stream::CopyIn);
    b.add("look", HostWork{.flops = Flops{1e5}}, reads_x ? std::vector<Operand>{reads(x)} : std::vector<Operand>{},
          Stream::Host);
    b.add("z", Fill{4, 3, DType::F64}, {writes(z)}, Stream::CopyIn);
    const Plan plan = b.take(nullptr);
    const auto e = make_host_executor();
    e->execute(plan, {});
    std::vector<Span> of_op(4);
    for (const Span& s : e->take().spans) of_op[s.op.index()] = s;
    CHECK(of_op[2].start_ps >= of_op[0].end_ps);
    if (!reads_x) CHECK(of_op[2].start_ps >= of_op[1].end_ps);
    CHECK(of_op[3].start_ps >= of_op[2].end_ps);
  }
}

TEST_CASE("a rank that fails stops the others with one error, and the next execution works", "[runtime]") {
  // Only rank 1 finds its matrix not positive definite; ranks 0 and 2 wait for it in the all-reduce.
  PlanBuilder b{"failing", Mesh{{{"r", 3}}}};
  b.begin_class("all", {{0, 3}});
  const GroupId group = b.group({.name = "all", .axes = {0}, .only = {{}}});
  const TensorId a = b.tensor("a", Shape{1, 1}, {.dtype = DType::F64, .persistent = true}),
                 l = b.tensor("l", Shape{1, 1}, {.dtype = DType::F64});
  const TensorId sum = b.tensor("sum", Shape{1, 1}, {.dtype = DType::F64, .persistent = true});
  b.add("factor", Cholesky{1, DType::F64}, {reads(a), writes(l)});
  b.add("sum", collective(CollectiveKind::AllReduce, group, 1), {reads(l), writes(sum)}, Stream::Comm);
  const Plan plan = b.take(nullptr);
  const auto e = make_host_executor();
  e->prepare(plan);
  for (std::size_t r = 0; r < 3; ++r) e->write(plan, a, RankId{r}, List{r == 1 ? -1.0 : 4.0});
  for (int i = 0; i < 5; ++i)
    CHECK_THROWS_WITH(e->execute(plan, {}), "op 0 'factor' on rank 1: 'a' is not positive definite at row 0");
  e->write(plan, a, RankId{1}, List{9.0});
  e->execute(plan, {});
  CHECK(e->read(plan, sum, RankId{2}) == List{7.0});
}
