// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/ids.hpp"

namespace orrery {

struct RankTag;
struct ClassTag;
struct GroupTag;
using RankId = Id<RankTag>;
using ClassId = Id<ClassTag, std::uint16_t>;
using GroupId = Id<GroupTag, std::uint16_t>;

/// One dimension of parallelism: "dp" of size 8.
struct Axis {
  std::string name;
  std::int64_t size = 1;
};

/// A mesh has no more axes and ranks than this.
constexpr int kMaxMeshAxes = 8;
constexpr std::int64_t kMaxRanks = 10'000'000;
/// Some axes of a mesh, by index, in an order that matters; −1 behind the last.
using AxisList = std::array<std::int8_t, kMaxMeshAxes>;
constexpr AxisList kNoAxes{-1, -1, -1, -1, -1, -1, -1, -1};

/// All ranks as an N-dimensional grid. The last axis varies fastest: neighbours on it have consecutive ranks.
struct Mesh {
  std::vector<Axis> axes;

  std::int64_t size() const;                                 // 1 for a mesh without axes
  std::vector<std::int64_t> coordinates(RankId rank) const;  // one per axis
  RankId rank(const std::vector<std::int64_t>& coordinates) const;
};

/// Half-open range of coordinates on one axis.
struct CoordRange {
  std::int64_t first = 0, last = 0;
  bool operator==(const CoordRange&) const = default;
};

/// Every coordinate of every axis.
std::vector<CoordRange> all_of(const Mesh& mesh);

/// A set of mesh coordinates that do the same work: the product of one range per axis. A plan stores each op once per
/// class.
struct RankClass {
  std::string name;                         // "stage 3"
  std::vector<CoordRange> ranges;           // one per axis of the mesh
  std::uint32_t first_op = 0, num_ops = 0;  // its ops: a contiguous range of Plan::ops

  std::int64_t size() const;  // ranks in the class
  bool contains(const std::vector<std::int64_t>& coordinates) const;
};

/// A family of communicators: ranks that differ only on these axes talk to each other. Along a restricted axis only the
/// listed coordinates take part (tied embeddings: first and last stage).
struct Group {
  std::string name;  // "tp"
  std::vector<std::uint8_t> axes;
  std::vector<std::vector<std::int64_t>> only;  // per entry of `axes`: the coordinates that take part; empty list = all
};

/// The members of the communicator of `group` that `rank` belongs to, in rank order; empty when it belongs to none.
std::vector<RankId> members(const Mesh& mesh, const Group& group, RankId rank);

/// A mesh of representatives. An axis along which all ranks are equal is cut down to one coordinate: they march in
/// step, and a partner on that axis does what the rank itself does. On other axes runs of equal ranks are cut down to
/// two. Order, matching and standstills of communication are checked on it in place of the whole mesh.
struct ReducedMesh {
  Mesh mesh;
  std::vector<Group> groups;           // of the plan, with the coordinates of this mesh
  std::vector<ClassId> class_of_rank;  // per rank of this mesh
  std::vector<RankId> original;        // the rank of the whole mesh that it stands for
};
ReducedMesh reduce(const Mesh& mesh, const std::vector<RankClass>& classes, const std::vector<Group>& groups);

/// A partner in a send or receive: an offset per mesh axis, wrapping round.
struct Peer {
  std::uint8_t axis = 0;
  std::int32_t offset = 0;
  bool operator==(const Peer&) const = default;
};
RankId peer_of(const Mesh& mesh, RankId rank, Peer peer);

}  // namespace orrery
