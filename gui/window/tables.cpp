// SPDX-License-Identifier: Apache-2.0
#include "gui/window/tables.hpp"

#include <QHeaderView>
#include <QTableWidget>
#include <cmath>

namespace orrery::gui {
namespace {

class TableItem final : public QTableWidgetItem {
 public:
  TableItem(const TableCell& c, quint64 number) : QTableWidgetItem{c.text}, sort_{c.sort}, is_number_{c.is_number} {
    setFlags(Qt::ItemIsSelectable | Qt::ItemIsEnabled);
    setData(Qt::UserRole, number);
    setToolTip(c.text);
    if (is_number_) setTextAlignment(Qt::AlignRight | Qt::AlignVCenter);
  }
  bool operator<(const QTableWidgetItem& other) const override {
    const auto* cell = dynamic_cast<const TableItem*>(&other);
    return cell != nullptr && is_number_ ? sort_ < cell->sort_ : text().localeAwareCompare(other.text()) < 0;
  }

 private:
  double sort_;
  bool is_number_;
};

}  // namespace

QTableWidget* make_table(const QString& name, const QStringList& columns, QWidget* parent, int wide_column) {
  auto* table = new QTableWidget{0, static_cast<int>(columns.size()), parent};
  table->setObjectName(name);
  table->setAccessibleName(name);
  table->setHorizontalHeaderLabels(columns);
  table->verticalHeader()->hide();
  scale_table(*table, 1);
  table->setShowGrid(false);
  table->setAlternatingRowColors(true);
  table->setSelectionBehavior(QAbstractItemView::SelectRows);
  table->setSelectionMode(QAbstractItemView::SingleSelection);
  table->setEditTriggers(QAbstractItemView::NoEditTriggers);
  table->setTabKeyNavigation(false);
  table->setWordWrap(false);
  table->horizontalHeader()->setHighlightSections(false);
  for (int c = 0; c < static_cast<int>(columns.size()); ++c)
    table->horizontalHeader()->setSectionResizeMode(
        c, c == wide_column ? QHeaderView::Stretch : QHeaderView::ResizeToContents);
  return table;
}

void scale_table(QTableWidget& table, double scale) {
  constexpr double kRow = 22;
  table.verticalHeader()->setDefaultSectionSize(static_cast<int>(std::lround(kRow * scale)));
}

void fill_table(QTableWidget& table, const std::vector<std::vector<TableCell>>& rows,
                const std::vector<quint64>& numbers) {
  const bool sorts = table.isSortingEnabled();
  table.setSortingEnabled(false);
  table.setRowCount(static_cast<int>(rows.size()));
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t c = 0; c < rows[r].size(); ++c)
      table.setItem(static_cast<int>(r), static_cast<int>(c),
                    new TableItem{rows[r][c], r < numbers.size() ? numbers[r] : static_cast<quint64>(r)});
  table.setSortingEnabled(sorts);
}

quint64 row_number(const QTableWidget& table, int row) {
  const QTableWidgetItem* item = table.item(row, 0);
  return item == nullptr ? 0 : item->data(Qt::UserRole).toULongLong();
}

}  // namespace orrery::gui
