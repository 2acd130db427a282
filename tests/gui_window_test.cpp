// SPDX-License-Identifier: Apache-2.0
// The real window, driven by keys, clicks and drags.
#include "tests/gui_window_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("a window without a timeline says what to do", "[gui]") {
  FakeResimulator r;
  MainWindow window{&r};
  window.show();
  for (const char* id : {"details", "tracks", "comparison", "scatter", "statistics", "critical_path", "memory"}) {
    const auto* panel = window.findChild<QDockWidget*>(QString{"dock_"} + id)->findChild<Panel*>();
    INFO(id);
    REQUIRE(panel != nullptr);
    CHECK(panel->is_empty());
    CHECK(panel->empty_text().size() > 20);
  }
  CHECK_FALSE(window.grab().isNull());
}

TEST_CASE("W, S, A and D zoom and pan, F and 0 fit", "[gui]") {
  Fixture f;
  f.open();
  const TimeRange all = f.view().time;
  f.key(Qt::Key_W);
  CHECK(f.view().time.length() < all.length());
  const TimeRange zoomed = f.view().time;
  f.key(Qt::Key_D);
  CHECK(f.view().time.begin > zoomed.begin);
  f.key(Qt::Key_A);
  CHECK(std::abs(f.view().time.begin - zoomed.begin) <= 1);
  f.key(Qt::Key_S);
  CHECK(f.view().time.length() > zoomed.length());
  f.key(Qt::Key_0);
  CHECK(f.view().time == all);
}

TEST_CASE("keys count by their place, whatever is printed on them", "[gui]") {
  Fixture f;
  f.open();
  const TimeRange all = f.view().time;
  // The key beside Tab of the row of letters, second from the left: "Z" on a French keyboard, scan code 25 in X11.
  QKeyEvent press{QEvent::KeyPress, Qt::Key_Z, Qt::NoModifier, 25, 0, 0, "z"};
  QApplication::sendEvent(&f.window.timeline(), &press);
  CHECK(f.view().time.length() < all.length());
}

TEST_CASE("a click selects what is under it and shows its details", "[gui]") {
  Fixture f;
  f.open();
  const QPoint at = f.slice_pixel();
  QTest::mouseClick(&f.window.timeline(), Qt::LeftButton, {}, at);
  REQUIRE(f.view().selected);
  const auto* details = f.window.findChild<QTableWidget*>("details");
  CHECK(details->rowCount() > 5);
  CHECK(details->item(0, 1)->text().startsWith("layers."));
  CHECK(f.window.timeline().accessibleDescription().contains("takes"));
  f.key(Qt::Key_F);
  CHECK(f.view().time.length() < f.window.explorer().whole().length());
  f.key(Qt::Key_Escape);
  CHECK_FALSE(f.view().selected);
}

TEST_CASE("a drag moves the time, with Shift it selects a range", "[gui]") {
  Fixture f;
  f.open();
  f.key(Qt::Key_W);
  const TimeRange before = f.view().time;
  QTest::mousePress(&f.window.timeline(), Qt::LeftButton, {}, {600, 300});
  QTest::mouseMove(&f.window.timeline(), {560, 300});
  QTest::mouseMove(&f.window.timeline(), {500, 300});
  QTest::mouseRelease(&f.window.timeline(), Qt::LeftButton, {}, {500, 300});
  CHECK(f.view().time.begin > before.begin);
  CHECK(f.view().time.length() == before.length());
  QTest::mousePress(&f.window.timeline(), Qt::LeftButton, Qt::ShiftModifier, {400, 300});
  QTest::mouseMove(&f.window.timeline(), {450, 300});
  QTest::mouseMove(&f.window.timeline(), {600, 300});
  QTest::mouseRelease(&f.window.timeline(), Qt::LeftButton, Qt::ShiftModifier, {600, 300});
  REQUIRE(f.view().range);
  CHECK(f.view().range->length() > 0);
  CHECK(f.window.findChild<QTableWidget*>("statistics")->rowCount() > 0);
}

TEST_CASE("the wheel scrolls rows, with Ctrl it zooms at the pointer, with Shift it pans", "[gui]") {
  Fixture f;
  f.open();
  f.window.resize(1000, 500);
  QApplication::processEvents();
  const auto wheel = [&](int delta, Qt::KeyboardModifiers m) {
    QWheelEvent e{QPointF{500, 250},
                  f.window.timeline().mapToGlobal(QPointF{500, 250}),
                  {},
                  {0, delta},
                  Qt::NoButton,
                  m,
                  Qt::NoScrollPhase,
                  false};
    QApplication::sendEvent(&f.window.timeline(), &e);
  };
  const std::int64_t length = f.view().time.length();
  wheel(120, Qt::ControlModifier);
  CHECK(f.view().time.length() < length);
  const std::int64_t begin = f.view().time.begin;
  wheel(-120, Qt::ShiftModifier);
  CHECK(f.view().time.begin > begin);
  wheel(-240, Qt::NoModifier);
  CHECK(f.view().scroll > 0);
}

TEST_CASE("two fingers that part on a touchpad zoom where the pointer is", "[gui]") {
  Fixture f;
  f.open();
  const Regions parts = regions(f.window.timeline().picture(), f.view(), f.window.explorer().layout());
  const QPointF at{500, 250};
  const std::int64_t length = f.view().time.length(), under = time_at(parts, f.view(), at.x());
  QNativeGestureEvent part{Qt::ZoomNativeGesture,
                           QPointingDevice::primaryPointingDevice(),
                           2,
                           at,
                           at,
                           f.window.timeline().mapToGlobal(at),
                           0.25,
                           {}};
  QApplication::sendEvent(&f.window.timeline(), &part);
  CHECK(double(f.view().time.length()) == Approx(double(length) / 1.25));
  CHECK(double(time_at(parts, f.view(), at.x())) == Approx(double(under)).epsilon(1e-3));
}

TEST_CASE("a click on the picture of the whole run goes there", "[gui]") {
  Fixture f;
  f.open();
  for (int i = 0; i < 6; ++i) f.key(Qt::Key_W);
  const std::int64_t begin = f.view().time.begin;
  QTest::mouseClick(&f.window.timeline(), Qt::LeftButton, {}, {f.window.timeline().width() - 60, 15});
  CHECK(f.view().time.begin > begin);
}

TEST_CASE("a click on a title folds a rank, a second one unfolds it", "[gui]") {
  Fixture f;
  f.open();
  const Regions parts = regions(f.window.timeline().picture(), f.view(), f.window.explorer().layout());
  const QPoint title{20, parts.rows.y + 8};
  const std::size_t rows = f.window.explorer().layout().rows.size();
  QTest::mouseClick(&f.window.timeline(), Qt::LeftButton, {}, title);
  CHECK(f.window.explorer().layout().rows.size() < rows);
  QTest::mouseClick(&f.window.timeline(), Qt::LeftButton, {}, title);
  CHECK(f.window.explorer().layout().rows.size() == rows);
}

TEST_CASE("search finds, F3 goes on, M sets bookmarks", "[gui]") {
  Fixture f;
  f.open();
  auto* line = f.window.findChild<QDockWidget*>("dock_search")->findChild<QLineEdit*>();
  f.key(Qt::Key_Slash);
  QTest::keyClicks(line, "op7 all_reduce");
  QTest::keyClick(line, Qt::Key_Return);
  REQUIRE_FALSE(f.view().found.empty());
  REQUIRE(f.view().selected);
  const EventIndex first = f.view().selected->event;
  f.window.timeline().setFocus();
  f.key(Qt::Key_F3);
  CHECK(f.view().selected->event != first);
  f.key(Qt::Key_M);
  CHECK(f.view().marks.size() == 1);
  f.key(Qt::Key_M);
  CHECK(f.view().marks.empty());
}

TEST_CASE("arrows lead on with ] and back with [, the lane with . and ,", "[gui]") {
  Fixture f;
  f.open();
  f.window.execute("search op7 all_reduce");
  const EventIndex found = f.view().selected->event;
  f.key(Qt::Key_BracketLeft);
  CHECK(f.view().selected->event != found);
  f.window.execute("search op7 all_reduce");
  f.key(Qt::Key_Period);
  CHECK(f.view().selected->event != found);
  f.key(Qt::Key_Comma);
  CHECK(f.view().selected->event == found);
  f.key(Qt::Key_P);
  CHECK(f.view().pinned.size() == 1);
}
