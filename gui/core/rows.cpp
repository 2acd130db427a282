// SPDX-License-Identifier: Apache-2.0
#include "gui/core/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace orrery::gui {
namespace {

constexpr double kLaneHeight = 22, kTitleHeight = 22, kCounterHeight = 40, kErrorHeight = 18, kOverflowHeight = 16;

std::size_t axis_of(const Document& document, const std::string& by) {
  if (document.trace() == nullptr || document.trace()->plans.empty()) return SIZE_MAX;
  const std::vector<Axis>& axes = document.trace()->plans.front().mesh.axes;
  for (std::size_t a = 0; a < axes.size(); ++a)
    if (axes[a].name == by) return a;
  return SIZE_MAX;
}

class Builder {
 public:
  Builder(const Document& document, const Companion* other, const View& view)
      : document_{document}, other_{other}, view_{view} {}

  void add_rows(Layout& out) {
    for (std::uint32_t g = 0; g < out.groups.size(); ++g) {
      const bool is_named = !out.groups[g].name.empty();
      Row group{RowKind::Group, 0, view_.px(kTitleHeight), 0, g, false};
      group.is_folded = view_.folded.contains(group.key());
      if (is_named) push(out.rows, out.height, group);
      if (is_named && group.is_folded) continue;
      for (const std::uint32_t o : out.groups[g].owners) add_owner(out.rows, out.height, o, is_named ? 1 : 0);
    }
  }

  void add_pinned(Layout& out) {
    for (const RowKey key : view_.pinned) {
      const auto kind = static_cast<RowKind>(key >> 32);
      const auto index = static_cast<std::uint32_t>(key);
      if (kind == RowKind::Lane && index < document_.tracks().size()) add_lane(out.pinned, out.pinned_height, index, 0);
      if (kind == RowKind::Counter && index < document_.counters().size())
        push(out.pinned, out.pinned_height, {kind, 0, view_.px(kCounterHeight), 0, index, false});
      if (kind == RowKind::Owner && index < document_.owners().size())
        add_owner(out.pinned, out.pinned_height, index, 0);
    }
  }

  static void push(std::vector<Row>& rows, int& height, Row row) {
    row.y = height;
    height += row.height;
    rows.push_back(row);
  }

 private:
  void add_owner(std::vector<Row>& rows, int& height, std::uint32_t o, int depth) {
    const Owner& owner = document_.owners()[o];
    Row title{RowKind::Owner, 0, view_.px(kTitleHeight), depth, o, false};
    title.is_folded = view_.folded.contains(title.key());
    push(rows, height, title);
    if (title.is_folded) return;
    for (const std::uint32_t t : owner.tracks) add_lane(rows, height, t, depth + 1);
    if (!view_.show_counters) return;
    for (const std::uint32_t c : owner.counters)
      push(rows, height, {RowKind::Counter, 0, view_.px(kCounterHeight), depth + 1, c, false});
  }

  void add_lane(std::vector<Row>& rows, int& height, std::uint32_t t, int depth) {
    const int lane = view_.px(document_.tracks()[t].is_overflow ? kOverflowHeight : kLaneHeight);
    push(rows, height, {RowKind::Lane, 0, lane, depth, t, false});
    if (other_ == nullptr || view_.compare_mode != CompareMode::Lanes) return;
    push(rows, height, {RowKind::OtherLane, 0, lane, depth, t, false});
    push(rows, height, {RowKind::Errors, 0, view_.px(kErrorHeight), depth, t, false});
  }

  const Document& document_;
  const Companion* other_;
  const View& view_;
};

}  // namespace

std::vector<std::string> groupings_of(const Document& document) {
  std::vector<std::string> out;
  if (document.devices_per_node() != Document::kNoNodes) out.emplace_back("node");
  if (document.trace() == nullptr || document.trace()->plans.empty()) return out;
  for (const Axis& a : document.trace()->plans.front().mesh.axes) out.push_back(a.name);
  return out;
}

std::vector<Group> groups_of(const Document& document, const std::string& by) {
  const std::int64_t per_node = by == "node" ? document.devices_per_node() : Document::kNoNodes;
  const std::size_t axis = axis_of(document, by);
  std::map<std::int64_t, Group> groups;
  for (std::uint32_t o = 0; o < document.owners().size(); ++o) {
    const std::uint32_t id = document.owners()[o].id;
    std::int64_t key = 0;
    std::string name;
    if (per_node != Document::kNoNodes) {
      key = id / per_node;
      name = fmt::format("node {}", key);
    } else if (axis != SIZE_MAX && id < document.trace()->plans.front().mesh.size()) {
      key = document.trace()->plans.front().mesh.coordinates(RankId{id})[axis];
      name = fmt::format("{} {}", by, key);
    }
    groups[key].name = name;
    groups[key].owners.push_back(o);
  }
  std::vector<Group> out;
  for (auto& [key, group] : groups) out.push_back(std::move(group));
  return out;
}

Layout layout(const Document& document, const Companion* other, const View& view, bool has_critical_path) {
  Layout out;
  out.groups = groups_of(document, view.group_by);
  Builder builder{document, other, view};
  if (view.show_critical_path && has_critical_path)
    Builder::push(out.pinned, out.pinned_height, {RowKind::CriticalPath, 0, view.px(kLaneHeight), 0, 0, false});
  builder.add_pinned(out);
  builder.add_rows(out);
  return out;
}

std::string title_of(const Row& row, const Layout& layout, const Document& document, const View& view) {
  switch (row.kind) {
    case RowKind::Group:
      return fmt::format("{} · {} {}", layout.groups[row.index].name, layout.groups[row.index].owners.size(),
                         layout.groups[row.index].owners.size() == 1 ? "rank" : "ranks");
    case RowKind::Owner:
      return document.owners()[row.index].name;
    case RowKind::Lane:
      return document.tracks()[row.index].name;
    case RowKind::OtherLane:
      return document.tracks()[row.index].name;
    case RowKind::Errors:
      return view.error_channel == ErrorChannel::Duration ? "error"
                                                          : fmt::format("error: {}", word_of(view.error_channel));
    case RowKind::Counter:
      return document.counters()[row.index].name;
    case RowKind::CriticalPath:
      return "critical path";
  }
  return {};
}

}  // namespace orrery::gui
