// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "gui/core/companion.hpp"
#include "gui/core/view.hpp"

namespace orrery::gui {

enum class RowKind : std::uint8_t { Group, Owner, Lane, OtherLane, Errors, Counter, CriticalPath };

struct Row {
  RowKind kind = RowKind::Lane;
  int y = 0, height = 0;  // y within its part: from the top of the rows that scroll, or of the pinned ones
  int depth = 0;
  std::uint32_t index = 0;  // into groups, owners, tracks (of the main document) or counters
  bool is_folded = false;

  RowKey key() const { return std::uint64_t{static_cast<std::uint8_t>(kind)} << 32 | index; }
};

/// Owners that belong together: a node, a pipeline stage, a replica.
struct Group {
  std::string name;
  std::vector<std::uint32_t> owners;
};
/// By "node" or by the name of a mesh axis; one group without a name for anything else. Nodes are as large as the
/// trace's note "devices_per_node" says.
std::vector<Group> groups_of(const Document& document, const std::string& by);
/// What a document can be grouped by.
std::vector<std::string> groupings_of(const Document& document);

struct Layout {
  std::vector<Row> pinned, rows;
  std::vector<Group> groups;
  int pinned_height = 0, height = 0;
};

/// Which rows there are, from top to bottom. `other` is null without a comparison.
Layout layout(const Document& document, const Companion* other, const View& view, bool has_critical_path);

/// What stands in front of a row.
std::string title_of(const Row& row, const Layout& layout, const Document& document, const View& view);

}  // namespace orrery::gui
