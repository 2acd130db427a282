// SPDX-License-Identifier: Apache-2.0
#include "gui/window/timeline_widget.hpp"

#include <QAccessible>
#include <QContextMenuEvent>
#include <QHelpEvent>
#include <QMouseEvent>
#include <QNativeGestureEvent>
#include <QPainter>
#include <QToolTip>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>

#include "gui/core/raster_canvas.hpp"
#include "gui/window/texts.hpp"

namespace orrery::gui {
namespace {

/// A press that moves no further than this is a click.
constexpr int kClick = 4;
constexpr double kWheelZoom = 1.2;  // per notch of 120

/// What W, A, S and D do, by the scan codes of X11: the keys at these places, whatever is printed on them.
QString navigation_of(const QKeyEvent& e) {
  if (e.modifiers() != Qt::NoModifier) return {};
  switch (e.nativeScanCode()) {
    case 25:
      return "zoom_in";
    case 38:
      return "pan_left";
    case 39:
      return "zoom_out";
    case 40:
      return "pan_right";
    default:
      return {};
  }
}

}  // namespace

TimelineWidget::TimelineWidget(Explorer& explorer, QWidget* parent) : QWidget{parent}, explorer_{explorer} {
  setObjectName("timeline");
  setAccessibleName("timeline");
  setFocusPolicy(Qt::StrongFocus);
  setMouseTracking(true);
  setMinimumSize(320, 200);
  setAttribute(Qt::WA_OpaquePaintEvent);
}

Rect TimelineWidget::picture() const {
  const double ratio = devicePixelRatioF();
  return {0, 0, std::max(1, static_cast<int>(width() * ratio)), std::max(1, static_cast<int>(height() * ratio))};
}

QPoint TimelineWidget::pixel(QPointF at) const { return (at * devicePixelRatioF()).toPoint(); }

void TimelineWidget::redraw() {
  if (explorer_.is_open()) explorer_.clamp_scroll(picture());
  update();
  Q_EMIT view_changed();
}

Image TimelineWidget::image() {
  const Rect r = picture();
  if (image_.width != r.w || image_.height != r.h) image_ = Image{r.w, r.h, 0xff000000u};
  RasterCanvas canvas{image_, font_};
  if (explorer_.is_open()) {
    draw_timeline(canvas, explorer_.scene());
  } else {
    const Theme& look = theme(explorer_.view().theme);
    canvas.fill(r, look.background);
    const int y = r.h / 2;
    const View& view = explorer_.view();
    const auto line = [&](int below, const std::string& text, Color c, FontStyle style) {
      draw_text_centred(canvas, {0, y + view.px(below), r.w, view.px(24)}, text, c, style);
    };
    line(-40, opening_.isEmpty() ? "No timeline is open" : "Opening", look.text, {view.px(18), Weight::Bold});
    const FontStyle small{view.px(13)};
    if (!opening_.isEmpty()) {
      line(-8, opening_.toStdString(), look.muted, small);
    } else if (const std::string hint = "Drop a trace here, press Ctrl+O, or choose Help, Example comparison";
               font_.width(hint, small) <= r.w) {
      line(-8, hint, look.muted, small);
    } else {
      line(-8, "Drop a trace here, press Ctrl+O,", look.muted, small);
      line(16, "or choose Help, Example comparison", look.muted, small);
    }
  }
  return image_;
}

void TimelineWidget::set_opening(const QString& what) {
  if (what == opening_) return;
  opening_ = what;
  if (!explorer_.is_open()) update();
}

void TimelineWidget::paintEvent(QPaintEvent*) {
  image();
  QPainter painter{this};
  painter.setCompositionMode(QPainter::CompositionMode_Source);
  QImage shown{reinterpret_cast<const uchar*>(image_.pixels.data()), image_.width, image_.height, QImage::Format_RGB32};
  shown.setDevicePixelRatio(devicePixelRatioF());
  painter.drawImage(0, 0, shown);
  if (hasFocus()) {
    // Keyboard focus has to be seen.
    const Theme& look = theme(explorer_.view().theme);
    painter.setPen(QColor::fromRgb(look.accent));
    painter.drawRect(rect().adjusted(0, 0, -1, -1));
  }
}

void TimelineWidget::resizeEvent(QResizeEvent*) { redraw(); }

void TimelineWidget::zoom(double factor, int x) {
  const Regions parts = regions(picture(), explorer_.view(), explorer_.layout());
  View& view = explorer_.view();
  view.time = zoomed(view.time, time_at(parts, view, std::max(x, parts.rows.x)), factor, explorer_.whole());
  redraw();
}

void TimelineWidget::wheelEvent(QWheelEvent* e) {
  if (!explorer_.is_open()) return;
  View& view = explorer_.view();
  const QPoint delta = e->angleDelta();
  if (e->modifiers() & Qt::ControlModifier) {
    zoom(std::pow(kWheelZoom, -delta.y() / 120.0), pixel(e->position()).x());
  } else if ((e->modifiers() & Qt::ShiftModifier) || std::abs(delta.x()) > std::abs(delta.y())) {
    const int by = delta.x() != 0 ? delta.x() : delta.y();
    view.time = panned(view.time, -by / 120.0 * 0.1, explorer_.whole());
    redraw();
  } else {
    view.scroll -= static_cast<int>(delta.y() / 120.0 * view.px(60));
    redraw();
  }
  e->accept();
}

void TimelineWidget::mousePressEvent(QMouseEvent* e) {
  setFocus(Qt::MouseFocusReason);
  if (!explorer_.is_open() || (e->button() != Qt::LeftButton && e->button() != Qt::MiddleButton)) return;
  pressed_ = last_ = pixel(e->position());
  has_moved_ = false;
  const Regions parts = regions(picture(), explorer_.view(), explorer_.layout());
  const bool on_ruler = parts.ruler.contains(pressed_.x(), pressed_.y());
  if (parts.minimap.contains(pressed_.x(), pressed_.y())) {
    drag_ = Drag::Minimap;
    move_minimap(pressed_.x());
  } else if (on_ruler || (e->modifiers() & Qt::ShiftModifier)) {
    drag_ = Drag::Range;
  } else if (is_second(pressed_) || (shifts_ && (e->modifiers() & Qt::AltModifier))) {
    drag_ = Drag::Shift;
  } else {
    drag_ = Drag::Pan;
  }
}

bool TimelineWidget::is_second(QPoint at) const {
  if (!shifts_) return false;
  const Hit hit = hit_test(explorer_.scene(), picture(), at.x(), at.y());
  return hit.row != nullptr && !hit.is_header && hit.row->kind == RowKind::OtherLane;
}

void TimelineWidget::move_minimap(int x) {
  const Regions parts = regions(picture(), explorer_.view(), explorer_.layout());
  View& view = explorer_.view();
  const TimeRange whole{explorer_.document().begin(), explorer_.document().end()};
  const double share = double(x - parts.minimap.x) / std::max(1, parts.minimap.w);
  const auto middle = whole.begin + static_cast<std::int64_t>(share * double(whole.length()));
  const std::int64_t length = view.time.length();
  view.time = panned({middle - length / 2, middle - length / 2 + length}, 0, explorer_.whole());
  redraw();
}

void TimelineWidget::mouseMoveEvent(QMouseEvent* e) {
  if (drag_ == Drag::None || !explorer_.is_open()) return;
  const QPoint at = pixel(e->position());
  has_moved_ = has_moved_ || (at - pressed_).manhattanLength() > kClick;
  if (!has_moved_) return;
  View& view = explorer_.view();
  const Regions parts = regions(picture(), view, explorer_.layout());
  if (drag_ == Drag::Minimap) {
    move_minimap(at.x());
  } else if (drag_ == Drag::Pan) {
    setCursor(Qt::ClosedHandCursor);
    view.time = panned(view.time, -double(at.x() - last_.x()) / std::max(1, parts.rows.w), explorer_.whole());
    view.scroll -= at.y() - last_.y();
    redraw();
  } else if (drag_ == Drag::Shift) {
    setCursor(Qt::SizeHorCursor);
    Q_EMIT shifted(time_at(parts, view, at.x()) - time_at(parts, view, last_.x()));
  } else {
    const std::int64_t a = time_at(parts, view, pressed_.x()), b = time_at(parts, view, at.x());
    view.range = TimeRange{std::min(a, b), std::max(a, b)};
    redraw();
  }
  last_ = at;
}

void TimelineWidget::mouseReleaseEvent(QMouseEvent* e) {
  if (drag_ != Drag::None && drag_ != Drag::Minimap && !has_moved_) click(pixel(e->position()));
  if (drag_ == Drag::Range && has_moved_) Q_EMIT range_changed();
  drag_ = Drag::None;
  unsetCursor();
}

void TimelineWidget::click(QPoint at) {
  const Hit hit = hit_test(explorer_.scene(), picture(), at.x(), at.y());
  if (hit.row != nullptr && hit.is_header) {
    explorer_.toggle_fold(*hit.row);
    return redraw();
  }
  if (!hit.slice && explorer_.view().range) {
    explorer_.view().range.reset();
    Q_EMIT range_changed();
  }
  select(hit);
}

void TimelineWidget::select(const Hit& hit) {
  explorer_.view().selected = hit.slice;
  explorer_.refresh();
  redraw();
  Q_EMIT selection_changed();
}

void TimelineWidget::mouseDoubleClickEvent(QMouseEvent* e) {
  if (!explorer_.is_open()) return;
  const QPoint at = pixel(e->position());
  if (!hit_test(explorer_.scene(), picture(), at.x(), at.y()).slice) return;
  explorer_.view().range.reset();
  explorer_.focus();
  redraw();
}

void TimelineWidget::contextMenuEvent(QContextMenuEvent* e) {
  if (!explorer_.is_open()) return;
  const QPoint at = pixel(e->pos());
  const Hit hit = hit_test(explorer_.scene(), picture(), at.x(), at.y());
  if (e->reason() == QContextMenuEvent::Mouse && hit.slice) select(hit);
  Q_EMIT menu_requested(e->globalPos());
}

void TimelineWidget::keyPressEvent(QKeyEvent* e) {
  const QString action = navigation_of(*e);
  if (action.isEmpty()) return QWidget::keyPressEvent(e);
  Q_EMIT navigation_requested(action);
}

bool TimelineWidget::event(QEvent* e) {
  // Taken from the shortcuts, which go by what is printed on the keys.
  if (e->type() == QEvent::ShortcutOverride && !navigation_of(*static_cast<QKeyEvent*>(e)).isEmpty()) {
    e->accept();
    return true;
  }
  if (e->type() == QEvent::NativeGesture && explorer_.is_open()) {
    const auto* gesture = static_cast<QNativeGestureEvent*>(e);
    if (gesture->gestureType() != Qt::ZoomNativeGesture) return false;
    zoom(1 / std::max(0.1, 1 + gesture->value()), pixel(gesture->position()).x());
    return true;
  }
  if (e->type() == QEvent::ToolTip && explorer_.is_open()) {
    const auto* help = static_cast<QHelpEvent*>(e);
    show_tip(pixel(help->pos()), help->globalPos());
    return true;
  }
  return QWidget::event(e);
}

void TimelineWidget::show_tip(QPoint at, QPoint global) {
  const Hit hit = hit_test(explorer_.scene(), picture(), at.x(), at.y());
  if (hit.slice)
    QToolTip::showText(global, tip_text(explorer_, *hit.slice), this);
  else if (hit.row != nullptr && hit.row->kind == RowKind::Counter)
    QToolTip::showText(global, counter_text(explorer_, *hit.row, at.x(), picture()), this);
  else
    QToolTip::hideText();
}

QString TimelineWidget::describe_selection() const {
  const View& view = explorer_.view();
  return view.selected ? plain_text(explorer_, *view.selected) : QString{"nothing is selected"};
}

}  // namespace orrery::gui
