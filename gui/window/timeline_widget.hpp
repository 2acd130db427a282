// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QWidget>
#include <optional>

#include "gui/core/explorer.hpp"

namespace orrery::gui {

/// Shows an explorer's timeline and turns mouse, wheel and touchpad into changes of its view. Draws with the same code
/// as `orrery trace render`; Qt only copies the pixels.
class TimelineWidget : public QWidget {
  Q_OBJECT
 public:
  TimelineWidget(Explorer& explorer, QWidget* parent);

  Rect picture() const;
  /// The view has changed: draw it again.
  void redraw();
  Image image();
  Font& font() { return font_; }
  /// What is being opened, to be said while there is nothing else to be seen; empty: nothing.
  void set_opening(const QString& what);
  /// Whether rows of the second timeline, or any with Alt, are dragged to another time.
  void set_shifts(bool shifts) { shifts_ = shifts; }
  /// What screen readers say of the selected slice.
  QString describe_selection() const;

 Q_SIGNALS:
  void selection_changed();
  void range_changed();
  void view_changed();
  /// With the mouse, or with the key for it; what lies under it is selected.
  void menu_requested(QPoint at);
  /// A key of navigation at its place on the keyboard: the id of an action.
  void navigation_requested(const QString& action);
  /// The second timeline was dragged by so many picoseconds.
  void shifted(qint64 by);

 protected:
  void paintEvent(QPaintEvent*) override;
  void resizeEvent(QResizeEvent*) override;
  void mousePressEvent(QMouseEvent*) override;
  void mouseMoveEvent(QMouseEvent*) override;
  void mouseReleaseEvent(QMouseEvent*) override;
  void mouseDoubleClickEvent(QMouseEvent*) override;
  void wheelEvent(QWheelEvent*) override;
  void contextMenuEvent(QContextMenuEvent*) override;
  void keyPressEvent(QKeyEvent*) override;
  bool event(QEvent*) override;

 private:
  enum class Drag { None, Pan, Range, Minimap, Shift };

  QPoint pixel(QPointF at) const;  // of the picture, which may have more pixels than the widget
  void show_tip(QPoint at, QPoint global);
  void click(QPoint at);
  void select(const Hit& hit);
  void move_minimap(int x);
  bool is_second(QPoint at) const;
  void zoom(double factor, int x);

  Explorer& explorer_;
  Font font_;
  Image image_;
  Drag drag_ = Drag::None;
  QPoint pressed_, last_;
  QString opening_;
  bool has_moved_ = false, shifts_ = false;
};

}  // namespace orrery::gui
