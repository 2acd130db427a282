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

std::vector<CoordRange> all_of(const Mesh& mesh) {
  std::vector<CoordRange> out;
  for (const Axis& a : mesh.axes) out.push_back({0, a.size});
  return out;
}

namespace {

/// Where runs of equal coordinates begin on an axis, and the end.
std::vector<std::int64_t> cuts_of(std::size_t axis, std::int64_t size, const std::vector<RankClass>& classes,
                                  const std::vector<Group>& groups) {
  std::vector<std::int64_t> cuts{0, size};
  for (const RankClass& c : classes) {
    cuts.push_back(c.ranges[axis].first);
    cuts.push_back(c.ranges[axis].last);
  }
  for (const Group& g : groups)
    for (std::size_t e = 0; e < g.only.size(); ++e)
      if (g.axes[e] == axis)
        for (std::int64_t c : g.only[e]) {
          cuts.push_back(c);
          cuts.push_back(c + 1);
        }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

/// The coordinates of an axis that stay: one of an axis without cuts, else the first two of each run.
std::vector<std::int64_t> kept_of(const std::vector<std::int64_t>& cuts) {
  if (cuts.size() == 2) return {0};
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
    for (std::int64_t c = cuts[i]; c < std::min(cuts[i] + 2, cuts[i + 1]); ++c) kept.push_back(c);
  return kept;
}

}  // namespace

ReducedMesh reduce(const Mesh& mesh, const std::vector<RankClass>& classes, const std::vector<Group>& groups) {
  ReducedMesh out{mesh, groups, {}, {}};
  std::vector<std::vector<std::int64_t>> kept(mesh.axes.size());
  for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
    kept[a] = kept_of(cuts_of(a, mesh.axes[a].size, classes, groups));
    out.mesh.axes[a].size = static_cast<std::int64_t>(kept[a].size());
  }
  for (Group& g : out.groups)
    for (std::size_t e = 0; e < g.only.size(); ++e)
      for (std::int64_t& c : g.only[e])
        c = std::find(kept[g.axes[e]].begin(), kept[g.axes[e]].end(), c) - kept[g.axes[e]].begin();
  out.class_of_rank.resize(static_cast<std::size_t>(out.mesh.size()));
  for (std::size_t r = 0; r < out.class_of_rank.size(); ++r) {
    std::vector<std::int64_t> c = out.mesh.coordinates(RankId{r});
    for (std::size_t a = 0; a < c.size(); ++a) c[a] = kept[a][static_cast<std::size_t>(c[a])];
    out.original.push_back(mesh.rank(c));
    for (std::size_t k = 0; k < classes.size(); ++k)
      if (classes[k].contains(c)) out.class_of_rank[r] = ClassId{k};
  }
  return out;
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
