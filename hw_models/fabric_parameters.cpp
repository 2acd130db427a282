// SPDX-License-Identifier: Apache-2.0
#include "hw_models/fabric_parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "hw_models/parameters.hpp"

namespace orrery {

namespace fs = std::filesystem;

namespace {

constexpr double kSame = 0.03;      // of a size: one that was measured
constexpr double kLeastGap = 0.05;  // of ln(upper / lower end), where the ends meet
constexpr double kLeastOctaves = 0.25;

double octaves(Bytes from, Bytes to) { return std::max(kLeastOctaves, std::log2(to / from)); }

}  // namespace

std::span<const EnumName<Exchange>> enum_names(Exchange) {
  static constexpr EnumName<Exchange> kNames[] = {{Exchange::AllReduce, "all_reduce"},
                                                  {Exchange::AllGather, "all_gather"},
                                                  {Exchange::ReduceScatter, "reduce_scatter"},
                                                  {Exchange::AllToAll, "alltoall"},
                                                  {Exchange::SendRecv, "send_recv"},
                                                  {Exchange::Broadcast, "broadcast"},
                                                  {Exchange::Reduce, "reduce"}};
  return kNames;
}

CollectiveKind kind_of(Exchange e) {
  switch (e) {
    case Exchange::AllReduce:
      return CollectiveKind::AllReduce;
    case Exchange::AllGather:
      return CollectiveKind::AllGather;
    case Exchange::ReduceScatter:
      return CollectiveKind::ReduceScatter;
    case Exchange::AllToAll:
      return CollectiveKind::AllToAll;
    case Exchange::SendRecv:
      return CollectiveKind::Shift;
    case Exchange::Broadcast:
      return CollectiveKind::Broadcast;
    case Exchange::Reduce:
      return CollectiveKind::Reduce;
  }
  return CollectiveKind::AllReduce;
}

std::optional<Exchange> exchange_of(CollectiveKind kind) {
  for (const EnumName<Exchange>& e : enum_names(Exchange{}))
    if (kind_of(e.value) == kind) return e.value;
  return {};
}

const CurveSegment& CollectiveCurve::segment(Bytes bytes) const {
  const CurveSegment* found = &segments.front();
  for (const CurveSegment& s : segments)
    if (s.from <= bytes) found = &s;
  return *found;
}

CollectiveCurve::Doubt CollectiveCurve::doubt(Bytes bytes) const {
  const auto above = std::lower_bound(sizes.begin(), sizes.end(), bytes);
  const auto is_same = [&](Bytes size) { return std::abs(size / bytes - 1) <= kSame; };
  if (sizes.empty() || (above != sizes.end() && is_same(*above)) || (above != sizes.begin() && is_same(above[-1])))
    return {};
  if (above == sizes.begin()) return {&CurveSpread::below, std::sqrt(octaves(bytes, *above))};
  if (above == sizes.end()) return {&CurveSpread::beyond, std::sqrt(octaves(sizes.back(), bytes))};
  const Bytes s1 = above[-1], s2 = *above;
  const Seconds t1 = time(s1), t2 = time(s2);
  const double gap = std::log(std::min(t2, t1 * (bytes / s1)) / std::max(t1, t2 * (bytes / s2)));
  return {&CurveSpread::between, std::sqrt(std::hypot(gap, kLeastGap))};
}

double CollectiveCurve::deviation(Bytes bytes) const {
  const Doubt d = doubt(bytes);
  return std::max(spread.at, spread.*d.of * d.times);
}

FabricParameters read_fabric(const Node& document) {
  if (document.kind != Node::Kind::Map || document.fields.size() != 1 || document.fields.front().first != "fabric")
    throw UserError{at(document, "a file of a fabric has one key, `fabric`", "write `fabric:` above the parameters")};
  const Node& node = document.fields.front().second;
  FabricParameters p;
  std::vector<Diagnostic> problems;
  read_options(node, p, problems);
  for (const CollectiveCurve& c : p.curves) {
    const auto falls = [](const CurveSegment& a, const CurveSegment& b) { return a.from >= b.from; };
    if (c.segments.empty() || std::adjacent_find(c.segments.begin(), c.segments.end(), falls) != c.segments.end())
      problems.push_back(at(node, fmt::format("the curve of {} ranks has no segments in order of size", c.ranks),
                            "give each `from` above the one before"));
    if (!std::is_sorted(c.sizes.begin(), c.sizes.end()))
      problems.push_back(at(node, fmt::format("the curve of {} ranks has `sizes` out of order", c.ranks),
                            "give each above the one before"));
  }
  if (!problems.empty()) throw UserError{in_file_order(std::move(problems))};
  return p;
}

std::vector<std::string> fabric_names(const std::vector<std::string>& folders) { return device_names(folders); }

FabricParameters find_fabric(std::string_view name, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const fs::path path = fs::path{folder} / fmt::format("{}.yaml", name);
    if (fs::exists(path)) return read_fabric(read_yaml(path.string()));
  }
  throw unknown_name("fabric", name, fabric_names(folders));
}

std::string fabrics_folder() { return ORRERY_FABRICS_DIR; }

std::string fabric_file(const FabricParameters& parameters) {
  Node document = Node::map();
  document.fields.emplace_back("fabric", write_options(parameters));
  return "# SPDX-License-Identifier: Apache-2.0\n" + to_yaml(document);
}

}  // namespace orrery
