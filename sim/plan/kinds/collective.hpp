// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/kinds/common.hpp"
#include "sim/plan/mesh.hpp"

namespace orrery {

enum class CollectiveKind : std::uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Reduce,
  Shift,
  Barrier
};
enum class ReduceOp : std::uint8_t { Sum, Max };
std::string_view name_of(CollectiveKind k);

/// An operation over a group. `bytes` is the message as nccl-tests counts it: the buffer of a rank for all-reduce,
/// broadcast, reduce, all-to-all and shift; the gathered buffer for all-gather; the buffer before the scatter for
/// reduce-scatter. In a shift every member sends its buffer to the one that is `root` places further round the group
/// (negative: back) and gets that of the one as many places before it.  Operands: in → out.
///
/// With `row` > 0 the parts of an all-to-all differ, and how many rows they have is known at run time only: `bytes` is
/// what is expected. Spans [members · parts, 2] hold the first row and the end of each part that goes to a member, or
/// comes from it, one member after another.  Operands: in, spans of in, spans of out → out.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  GroupId group;
  std::int32_t root = 0;  // member of a broadcast or reduce; places of a shift
  Bytes bytes;
  ReduceOp reduce = ReduceOp::Sum;
  DType dtype = DType::F32;
  std::int64_t row = 0;  // elements of a row

  static constexpr std::string_view kName = "collective";
  static constexpr OpClass kClass = OpClass::Collective;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("group", group);
    v("root", root);
    v("bytes", bytes);
    v("reduce", reduce);
    v("dtype", dtype);
    v("row", row);
  }
  Amount amount(const Bindings&) const { return {{}, bytes, bytes, bytes}; }
  bool operator==(const Collective&) const = default;
};

/// How many places forward a shift goes in a group of n: 0 … n − 1.
constexpr std::size_t places_of_shift(std::int32_t root, std::size_t n) {
  const auto size = static_cast<std::int64_t>(n);
  return static_cast<std::size_t>((root % size + size) % size);
}

/// Sends to a peer; pairs with the receive of the peer that has the same tag and comes in the same order.  Operands: x.
struct Send {
  Peer peer;
  std::int64_t tag = 0;
  Bytes bytes;

  static constexpr std::string_view kName = "send";
  static constexpr OpClass kClass = OpClass::PointToPoint;
  template <class V>
  void visit(V&& v) const {
    v("peer", peer);
    v("tag", tag);
    v("bytes", bytes);
  }
  Amount amount(const Bindings&) const { return {{}, bytes, {}, bytes}; }
  bool operator==(const Send&) const = default;
};

/// Operands: → x.
struct Recv {
  Peer peer;
  std::int64_t tag = 0;
  Bytes bytes;

  static constexpr std::string_view kName = "recv";
  static constexpr OpClass kClass = OpClass::PointToPoint;
  template <class V>
  void visit(V&& v) const {
    v("peer", peer);
    v("tag", tag);
    v("bytes", bytes);
  }
  Amount amount(const Bindings&) const { return {{}, {}, bytes, bytes}; }
  bool operator==(const Recv&) const = default;
};

}  // namespace orrery
