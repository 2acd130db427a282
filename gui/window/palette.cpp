// SPDX-License-Identifier: Apache-2.0
#include "gui/window/palette.hpp"

#include <cmath>

namespace orrery::gui {

QPalette palette_of(const Theme& t) {
  const auto color = [](Color c) { return QColor::fromRgb(c); };
  QPalette p;
  p.setColor(QPalette::Window, color(t.panel));
  p.setColor(QPalette::WindowText, color(t.text));
  p.setColor(QPalette::Base, color(t.row));
  p.setColor(QPalette::AlternateBase, color(t.background));
  p.setColor(QPalette::Text, color(t.text));
  p.setColor(QPalette::PlaceholderText, color(t.muted));
  p.setColor(QPalette::Button, color(t.panel));
  p.setColor(QPalette::ButtonText, color(t.text));
  p.setColor(QPalette::BrightText, color(t.critical));
  p.setColor(QPalette::ToolTipBase, color(t.panel));
  p.setColor(QPalette::ToolTipText, color(t.text));
  p.setColor(QPalette::Highlight, color(t.accent));
  p.setColor(QPalette::HighlightedText, color(ink_on(t.accent)));
  p.setColor(QPalette::Link, color(t.accent));
  for (const QPalette::ColorRole role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText})
    p.setColor(QPalette::Disabled, role, color(mix(t.panel, t.text, 128)));
  return p;
}

QString style_sheet_of(const Theme& t, double scale) {
  const auto px = [scale](double at_scale_1) { return QString::number(std::lround(at_scale_1 * scale)) + "px"; };
  const auto name = [](Color c) { return QColor::fromRgb(c).name(); };
  return QString{
      "QMainWindow, QDockWidget > QStackedWidget, QDockWidget > QStackedWidget > QWidget { background: %1; }"
      "QTreeView::indicator { border: 1px solid %5; background: %8; width: %7; height: %7; }"
      "QTreeView::indicator:checked { background: %9; }"
      "QToolTip { background: %1; color: %3; border: 1px solid %2; padding: %6; }"
      "QTableView { gridline-color: %4; border: none; }"
      "QHeaderView::section { background: %1; color: %5; padding: %6; border: none; border-bottom: 1px solid %2; }"
      "QToolBar { background: %1; border: none; border-bottom: 1px solid %2; spacing: %6; padding: %6; }"
      "QStatusBar { background: %1; border-top: 1px solid %2; } QStatusBar::item { border: none; }"
      "QMenuBar { background: %1; }"}
      .arg(name(t.panel), name(t.border), name(t.text), name(t.grid), name(t.muted), px(4), px(12))
      .arg(name(t.row), name(t.accent));
}

}  // namespace orrery::gui
