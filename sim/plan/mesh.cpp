// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/mesh.hpp"

#include <algorithm>

namespace orrery {

std::int64_t Mesh::size() const {
  std::int64_t n = 1;
  for (const Axis& a : axes) n *= a.size;
  return n;
}

std::vector<std::int64_t> Mesh::coordinates(RankId rank) const {
  std::vector<std::int64_t> c(axes.size());
  auto rest = static_cast<std::int64_t>(rank.index());
  for (std::size_t i = axes.size(); i-- > 0;) {
    c[i] = rest % axes[i].size;
    rest /= axes[i].size;
  }
  return c;
}

RankId Mesh::rank(const std::vector<std::int64_t>& coordinates) const {
  std::int64_t r = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) r = r * axes[i].size + coordinates[i];
  return RankId{static_cast<std::size_t>(r)};
}

std::int64_t RankClass::size() const {
  std::int64_t n = 1;
  for (const CoordRange& r : ranges) n *= r.last - r.first;
  return n;
}

bool RankClass::contains(const std::vector<std::int64_t>& coordinates) const {
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (coordinates[i] < ranges[i].first || coordinates[i] >= ranges[i].last) return false;
  return true;
}

namespace {

bool takes_part(const Group& group, std::size_t entry, std::int64_t coordinate) {
  if (entry >= group.only.size() || group.only[entry].empty()) return true;
  return std::find(group.only[entry].begin(), group.only[entry].end(), coordinate) != group.only[entry].end();
}

}  // namespace

std::vector<RankId> members(const Mesh& mesh, const Group& group, RankId rank) {
  std::vector<std::int64_t> c = mesh.coordinates(rank);
  for (std::size_t e = 0; e < group.axes.size(); ++e)
    if (!takes_part(group, e, c[group.axes[e]])) return {};
  std::vector<std::uint8_t> axes = group.axes;  // in mesh order, so that members come out in rank order
  std::sort(axes.begin(), axes.end());
  std::vector<RankId> out;
  std::int64_t count = 1;
  for (std::uint8_t a : axes) count *= mesh.axes[a].size;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    for (std::size_t e = axes.size(); e-- > 0;) {
      c[axes[e]] = rest % mesh.axes[axes[e]].size;
      rest /= mesh.axes[axes[e]].size;
    }
    bool in = true;
    for (std::size_t e = 0; e < group.axes.size(); ++e) in = in && takes_part(group, e, c[group.axes[e]]);
    if (in) out.push_back(mesh.rank(c));
  }
  return out;
}

RankId peer_of(const Mesh& mesh, RankId rank, Peer peer) {
  std::vector<std::int64_t> c = mesh.coordinates(rank);
  const std::int64_t size = mesh.axes[peer.axis].size;
  c[peer.axis] = ((c[peer.axis] + peer.offset) % size + size) % size;
  return mesh.rank(c);
}

}  // namespace orrery
