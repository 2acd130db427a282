// SPDX-License-Identifier: Apache-2.0
#include "gui/window/track_tree.hpp"

#include <algorithm>

#include "gui/window/texts.hpp"

namespace orrery::gui {
namespace {

RowKey key_of(const QTreeWidgetItem& item) { return item.data(0, Qt::UserRole).toULongLong(); }

}  // namespace

TrackTree::TrackTree(Explorer& explorer, QWidget* parent) : QTreeWidget{parent}, explorer_{explorer} {
  setObjectName("tracks");
  setAccessibleName("ranks and lanes; checked ones are pinned");
  setHeaderLabel("opened: unfolded; checked: pinned");
  connect(this, &QTreeWidget::itemExpanded, this, [this](QTreeWidgetItem* i) { fold(i, false); });
  connect(this, &QTreeWidget::itemCollapsed, this, [this](QTreeWidgetItem* i) { fold(i, true); });
  connect(this, &QTreeWidget::itemChanged, this, [this](QTreeWidgetItem* i) {
    const std::vector<RowKey>& pinned = explorer_.view().pinned;
    const bool is_pinned = std::find(pinned.begin(), pinned.end(), key_of(*i)) != pinned.end();
    if ((i->checkState(0) == Qt::Checked) == is_pinned) return;
    explorer_.toggle_pin(key_of(*i));
    Q_EMIT rows_changed();
  });
  connect(this, &QTreeWidget::itemActivated, this, [this](QTreeWidgetItem* i) { Q_EMIT row_chosen(key_of(*i)); });
}

void TrackTree::fold(QTreeWidgetItem* item, bool folds) {
  if (explorer_.view().folded.contains(key_of(*item)) == folds) return;
  folds ? void(explorer_.view().folded.insert(key_of(*item))) : void(explorer_.view().folded.erase(key_of(*item)));
  explorer_.refresh();
  Q_EMIT rows_changed();
}

QTreeWidgetItem* TrackTree::add(QTreeWidgetItem* parent, const std::string& name, RowKey key, bool can_be_pinned) {
  auto* item = new QTreeWidgetItem{parent, {qt(name)}};
  item->setData(0, Qt::UserRole, quint64{key});
  if (can_be_pinned) item->setCheckState(0, Qt::Unchecked);
  return item;
}

void TrackTree::add_owner(QTreeWidgetItem* parent, std::uint32_t owner) {
  const Document& d = explorer_.document();
  const Owner& o = d.owners()[owner];
  QTreeWidgetItem* item = add(parent, o.name, Row{.kind = RowKind::Owner, .index = owner}.key(), true);
  for (const std::uint32_t t : o.tracks)
    add(item, d.tracks()[t].name, Row{.kind = RowKind::Lane, .index = t}.key(), true);
  for (const std::uint32_t c : o.counters)
    add(item, d.counters()[c].name, Row{.kind = RowKind::Counter, .index = c}.key(), true);
}

void TrackTree::make() {
  clear();
  const std::vector<Group>& groups = explorer_.layout().groups;
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    QTreeWidgetItem* parent = invisibleRootItem();
    if (!groups[g].name.empty())
      parent = add(parent, groups[g].name, Row{.kind = RowKind::Group, .index = g}.key(), false);
    for (const std::uint32_t o : groups[g].owners) add_owner(parent, o);
  }
}

void TrackTree::take_over(QTreeWidgetItem* item) {
  for (int i = 0; i < item->childCount(); ++i) {
    QTreeWidgetItem* child = item->child(i);
    const RowKey key = key_of(*child);
    if (child->childCount() > 0) child->setExpanded(!explorer_.view().folded.contains(key));
    if (child->data(0, Qt::CheckStateRole).isValid())
      child->setCheckState(
          0, std::find(pinned_.begin(), pinned_.end(), key) != pinned_.end() ? Qt::Checked : Qt::Unchecked);
    take_over(child);
  }
}

void TrackTree::refresh() {
  if (!explorer_.is_open()) return;
  const View& v = explorer_.view();
  const bool is_other = document_ != &explorer_.document() || group_by_ != v.group_by;
  if (!is_other && folded_ == v.folded && pinned_ == v.pinned) return;
  const QSignalBlocker blocked{this};
  if (is_other) make();
  document_ = &explorer_.document();
  group_by_ = v.group_by;
  folded_ = v.folded;
  pinned_ = v.pinned;
  take_over(invisibleRootItem());
}

}  // namespace orrery::gui
