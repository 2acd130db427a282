// SPDX-License-Identifier: Apache-2.0
// Ranks of this computer that exchange messages.
#include <fmt/format.h>

#include <optional>

#include "calibrate/draw.hpp"
#include "calibrate/suites.hpp"

namespace orrery {
namespace {

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllToAll,
    CollectiveKind::Broadcast, CollectiveKind::Reduce,    CollectiveKind::Shift,         CollectiveKind::Barrier};
constexpr int kSizes = 12;
constexpr std::int64_t kMostSent = 1 << 20;
constexpr Gemm kUsualWork{.m = 128, .n = 128, .k = 128, .transpose_b = true};  // tens of microseconds

Shape input_of(CollectiveKind k, std::int64_t elements, std::int64_t ranks) {
  return Shape{k == CollectiveKind::AllGather ? elements / ranks : elements};
}
Shape output_of(CollectiveKind k, std::int64_t elements, std::int64_t ranks) {
  return Shape{k == CollectiveKind::ReduceScatter ? elements / ranks : elements};
}

/// One message of a suite: of a kind, or to the neighbour on a ring.
struct Message {
  std::optional<CollectiveKind> kind;
  std::int64_t elements = 0;
};

/// The ops of a class of ranks. Each message carries what was written right before, as in a step, and the first rank
/// comes late: who has waited for longer than a moment sleeps, and has to be woken.
class MessageMaker {
 public:
  MessageMaker(PlanBuilder& b, GroupId group, std::int64_t ranks, bool is_late)
      : b_{b}, group_{group}, ranks_{ranks}, is_late_{is_late} {
    const TensorSpec weight{.role = TensorRole::Parameter, .persistent = true};
    x_ = b_.tensor("usual.x", {kUsualWork.m, kUsualWork.k}, weight);
    w_ = b_.tensor("usual.w", {kUsualWork.n, kUsualWork.k}, weight);
  }

  void add(const Message& m) {
    work();
    if (is_late_)
      for (int i = 0; i < kLate; ++i) work();
    if (!m.kind)
      shift(m.elements);
    else
      collective(*m.kind, m.elements);
    ++serial_;
  }

 private:
  static constexpr int kLate = 4;

  void work() {
    const TensorId y = b_.tensor("usual.y", {kUsualWork.m, kUsualWork.n}, {});
    b_.add(kProducer, kUsualWork, {reads(x_), reads(w_), writes(y)});
  }
  TensorId written(const Shape& shape) {
    const TensorId t = b_.tensor(fmt::format("in.{}", serial_), shape, {});
    b_.add(kProducer, Fill{.elements = shape.elements(), .value = 0.01}, {writes(t)});
    return t;
  }
  void collective(CollectiveKind kind, std::int64_t elements) {
    const std::string name = fmt::format("{}.{}", name_of(kind), elements);
    Collective work{.kind = kind, .group = group_, .bytes = size_of(DType::F32, elements)};
    if (kind == CollectiveKind::Shift) work.root = 1;
    if (kind == CollectiveKind::Barrier) {
      work.bytes = Bytes{0};
      b_.add(name, work, std::span<const Operand>{});
      return;
    }
    const TensorId in = written(input_of(kind, elements, ranks_));
    b_.add(name, work, {reads(in), writes(b_.tensor(name, output_of(kind, elements, ranks_), {}))});
  }
  void shift(std::int64_t elements) {
    const Bytes bytes = size_of(DType::F32, elements);
    const TensorId from = written({elements}), to = b_.tensor(fmt::format("out.{}", serial_), {elements}, {});
    b_.add("send", Send{.peer = {0, 1}, .tag = serial_, .bytes = bytes}, {reads(from)}, Stream::Comm);
    b_.add("recv", Recv{.peer = {0, -1}, .tag = serial_, .bytes = bytes}, {writes(to)}, Stream::CopyIn);
    b_.add(kProducer, Fill{.elements = elements, .value = 0.01}, {updates(to)});
  }

  PlanBuilder& b_;
  GroupId group_;
  std::int64_t ranks_, serial_ = 0;
  bool is_late_;
  TensorId x_, w_;
};

std::int64_t draw_elements(Random& random, std::int64_t ranks) {
  return (log_integer(random, 64, kMostSent) + ranks) / ranks * ranks;
}

Bench bench_of(const std::string& name, const std::vector<Message>& messages, std::int64_t ranks) {
  PlanBuilder b{name, Mesh{{{"rank", ranks}}}};
  std::optional<GroupId> group;
  for (const bool is_late : {true, false}) {
    b.begin_class(is_late ? "late" : "in time", {is_late ? CoordRange{0, 1} : CoordRange{1, ranks}});
    if (!group) group = b.group({.name = "all", .axes = {0}, .only = {{}}});
    MessageMaker maker{b, *group, ranks, is_late};
    for (const Message& m : messages) maker.add(m);
  }
  return {b.take(&host_workspaces()), {}, {}, 1};
}

}  // namespace

std::vector<Bench> message_benches(std::int64_t ranks, Random& random) {
  std::vector<Message> messages;
  for (int i = 0; i < kSizes; ++i) {
    const std::int64_t elements = draw_elements(random, ranks);
    for (const CollectiveKind kind : kKinds) messages.push_back({kind, elements});
  }
  std::vector<Bench> benches;
  benches.push_back(bench_of(fmt::format("collectives of {} ranks", ranks), messages, ranks));
  return benches;
}

std::vector<Bench> ring_benches(Random& random) {
  std::vector<Message> messages;
  for (int i = 0; i < 2 * kSizes; ++i) messages.push_back({{}, draw_elements(random, 2)});
  std::vector<Bench> benches;
  benches.push_back(bench_of("messages", messages, 2));
  return benches;
}

Bench pairs_bench(std::int64_t ranks) {
  constexpr int kMessages = 50;
  PlanBuilder b{fmt::format("pairs of {} ranks", ranks), Mesh{{{"pair", ranks / 2}, {"of", 2}}}};
  b.begin_class("all", all_of(b.plan().mesh));
  const GroupId pair = b.group({.name = "pair", .axes = {1}, .only = {{}}});
  const TensorId t = b.tensor("sum", {64}, {.role = TensorRole::Parameter, .persistent = true});
  for (int i = 0; i < kMessages; ++i)
    b.add("sum", Collective{.group = pair, .bytes = size_of(DType::F32, 64)}, {reads(t), writes(t)});
  return {b.take(&host_workspaces()), {}, {}, 0};
}

}  // namespace orrery
