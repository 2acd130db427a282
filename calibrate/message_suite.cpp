// SPDX-License-Identifier: Apache-2.0
// Ranks of this computer that exchange messages.
#include <fmt/format.h>

#include "calibrate/draw.hpp"
#include "calibrate/suites.hpp"

namespace orrery {
namespace {

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllToAll,
    CollectiveKind::Broadcast, CollectiveKind::Reduce,    CollectiveKind::Shift,         CollectiveKind::Barrier};
constexpr int kSizes = 12;
constexpr std::int64_t kMostElements = 1 << 20;

Shape input_of(CollectiveKind k, std::int64_t elements, std::int64_t ranks) {
  return Shape{k == CollectiveKind::AllGather ? elements / ranks : elements};
}
Shape output_of(CollectiveKind k, std::int64_t elements, std::int64_t ranks) {
  return Shape{k == CollectiveKind::ReduceScatter ? elements / ranks : elements};
}

void add_collective(PlanBuilder& b, GroupId group, CollectiveKind kind, std::int64_t elements, std::int64_t ranks) {
  const std::string name = fmt::format("{}.{}", name_of(kind), elements);
  Collective work{.kind = kind, .group = group, .bytes = size_of(DType::F32, elements)};
  if (kind == CollectiveKind::Shift) work.root = 1;
  if (kind == CollectiveKind::Barrier) {
    work.bytes = Bytes{0};
    b.add(name, work, std::span<const Operand>{});
    return;
  }
  const TensorId in =
      b.tensor(name + ".in", input_of(kind, elements, ranks), {.role = TensorRole::Parameter, .persistent = true});
  const TensorId out =
      b.tensor(name + ".out", output_of(kind, elements, ranks), {.role = TensorRole::Parameter, .persistent = true});
  b.add(name, work, {reads(in), writes(out)});
}

/// All ranks pass a message to their neighbour on a ring.
void add_shift(PlanBuilder& b, std::int64_t elements, std::int64_t tag) {
  const TensorId from =
      b.tensor(fmt::format("send.{}", tag), {elements}, {.role = TensorRole::Parameter, .persistent = true});
  const TensorId to =
      b.tensor(fmt::format("recv.{}", tag), {elements}, {.role = TensorRole::Parameter, .persistent = true});
  b.add("send", Send{.peer = {0, 1}, .tag = tag, .bytes = size_of(DType::F32, elements)}, {reads(from)}, Stream::Comm);
  b.add("recv", Recv{.peer = {0, -1}, .tag = tag, .bytes = size_of(DType::F32, elements)}, {writes(to)},
        Stream::CopyIn);
}

}  // namespace

std::vector<Bench> message_benches(std::int64_t ranks, Random& random) {
  if (ranks < 2) return {};
  std::vector<Bench> benches;
  for (const bool collectives : {true, false}) {
    PlanBuilder b{collectives ? "collectives" : "messages", Mesh{{{"rank", ranks}}}};
    b.begin_class("all", {{0, ranks}});
    const GroupId group = b.group({.name = "all", .axes = {0}, .only = {{}}});
    for (int i = 0; i < kSizes; ++i) {
      const std::int64_t elements = (log_integer(random, 64, kMostElements) + ranks) / ranks * ranks;
      if (!collectives) add_shift(b, elements, i);
      for (const CollectiveKind kind : kKinds)
        if (collectives) add_collective(b, group, kind, elements, ranks);
    }
    benches.push_back({b.take(&host_workspaces()), {}, {}, 1});
  }
  return benches;
}

}  // namespace orrery
