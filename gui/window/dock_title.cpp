// SPDX-License-Identifier: Apache-2.0
#include "gui/window/dock_title.hpp"

#include <QEvent>
#include <QHBoxLayout>
#include <QIcon>
#include <QLabel>
#include <QPainter>
#include <QToolButton>
#include <algorithm>
#include <functional>

namespace orrery::gui {
namespace {

/// Lines in a square of `side` pixels, as sharp at any size.
QIcon icon_of(int side, const QColor& color, const std::function<void(QPainter&, QRectF)>& draw) {
  QPixmap pixmap{side, side};
  pixmap.fill(Qt::transparent);
  QPainter painter{&pixmap};
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen({color, std::max(1.0, side / 10.0)});
  const double margin = side / 5.0;
  draw(painter, QRectF{margin, margin, side - 2 * margin, side - 2 * margin});
  painter.end();
  return pixmap;
}

void draw_cross(QPainter& p, QRectF r) {
  p.drawLine(r.topLeft(), r.bottomRight());
  p.drawLine(r.topRight(), r.bottomLeft());
}

/// One window in front of another.
void draw_windows(QPainter& p, QRectF r) {
  const double size = r.width() * 0.7;
  p.drawRect(QRectF{r.left(), r.bottom() - size, size, size});
  p.drawPolyline(QPolygonF{{r.left() + r.width() - size, r.top()}, r.topRight(), {r.right(), r.top() + size}});
}

class DockTitle final : public QWidget {
 public:
  explicit DockTitle(QDockWidget& dock) : QWidget{&dock} {
    auto* row = new QHBoxLayout{this};
    row->setContentsMargins(8, 2, 2, 2);
    row->addWidget(new QLabel{dock.windowTitle()}, 1);
    const auto button = [&](const QString& name, auto&& clicked) {
      auto* b = new QToolButton;
      b->setAutoRaise(true);
      b->setFocusPolicy(Qt::TabFocus);
      b->setAccessibleName(name.arg(dock.windowTitle()));
      b->setToolTip(b->accessibleName());
      connect(b, &QToolButton::clicked, &dock, clicked);
      row->addWidget(b);
      return b;
    };
    buttons_[0] = button(tr("%1 in a window of its own, or back"), [&dock] { dock.setFloating(!dock.isFloating()); });
    buttons_[1] = button(tr("Close %1"), [&dock] { dock.close(); });
    scale();
  }

 protected:
  void changeEvent(QEvent* event) override {
    QWidget::changeEvent(event);
    if (event->type() == QEvent::FontChange || event->type() == QEvent::PaletteChange) scale();
  }

 private:
  void scale() {
    const int side = fontMetrics().ascent();
    const QColor color = palette().color(QPalette::WindowText);
    for (QToolButton* b : buttons_) {
      if (b == nullptr) return;  // it is being made
      b->setIconSize({side, side});
      b->setIcon(icon_of(side, color, b == buttons_[0] ? draw_windows : draw_cross));
    }
  }

  QToolButton* buttons_[2] = {};
};

}  // namespace

void give_title(QDockWidget& dock) { dock.setTitleBarWidget(new DockTitle{dock}); }

}  // namespace orrery::gui
