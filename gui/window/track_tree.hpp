// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QTreeWidget>
#include <set>
#include <vector>

#include "gui/core/explorer.hpp"

namespace orrery::gui {

/// Groups, ranks, lanes and counters of the timeline as a tree: what the rows do with the mouse, by keyboard. Opened
/// means unfolded, checked means pinned; Enter goes there.
class TrackTree : public QTreeWidget {
  Q_OBJECT
 public:
  TrackTree(Explorer& explorer, QWidget* parent);

  /// Shows what is open; made anew only where the timeline or its groups are others than before.
  void refresh();

 Q_SIGNALS:
  /// A row was folded, unfolded, pinned or unpinned.
  void rows_changed();
  void row_chosen(quint64 key);

 private:
  void make();
  QTreeWidgetItem* add(QTreeWidgetItem* parent, const std::string& name, RowKey key, bool can_be_pinned);
  void add_owner(QTreeWidgetItem* parent, std::uint32_t owner);
  void take_over(QTreeWidgetItem* item);
  void fold(QTreeWidgetItem* item, bool folds);

  Explorer& explorer_;
  const Document* document_ = nullptr;  // which the tree shows
  std::string group_by_;
  std::set<RowKey> folded_;
  std::vector<RowKey> pinned_;
};

}  // namespace orrery::gui
