// SPDX-License-Identifier: Apache-2.0
// Comparison, what-if, menus, scripts, files, accessibility and pictures of the real window.
#include "tests/gui_window_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("a comparison shows how it was matched, where the error comes from, and the worst ops", "[gui]") {
  Fixture f;
  f.compare();
  const auto* state = f.window.statusBar()->findChild<QLabel*>(QString{}, Qt::FindDirectChildrenOnly);
  REQUIRE(state != nullptr);
  QString all;
  for (const QLabel* l : f.window.statusBar()->findChildren<QLabel*>()) all += l->text();
  CHECK(all.contains("1300 by id"));
  CHECK(all.contains("unmatched 0 (0 s) + 0 (0 s)"));
  const auto* shares = f.window.findChild<QTableWidget*>("shares");
  CHECK(shares->rowCount() >= 3);
  f.key(Qt::Key_N);
  REQUIRE(f.view().selected);
  const EventIndex worst = f.view().selected->event;
  f.key(Qt::Key_N);
  CHECK(f.view().selected->event != worst);
  f.key(Qt::Key_N, Qt::ShiftModifier);
  CHECK(f.view().selected->event == worst);
  f.key(Qt::Key_E);
  CHECK(f.view().colour_by == ColourBy::Error);
  f.key(Qt::Key_O);
  CHECK(f.view().compare_mode == CompareMode::Overlay);
  f.key(Qt::Key_B);
  CHECK(f.view().compare_mode == CompareMode::Blink);
  f.key(Qt::Key_L);
  CHECK_FALSE(f.window.actions().find("lock_alignment")->is_checked());
}

TEST_CASE("details of an op do not speak of a comparison that has ended", "[gui]") {
  Fixture f;
  f.compare();
  f.window.execute("next_worst");
  const auto* details = f.window.findChild<QDockWidget*>("dock_details")->findChild<QTableWidget*>();
  REQUIRE(details != nullptr);
  const auto tells = [&](const char* what) { return !details->findItems(what, Qt::MatchExactly).isEmpty(); };
  CHECK(tells("partner"));
  f.window.execute("end_comparison");
  CHECK(tells("duration"));
  CHECK_FALSE(tells("partner"));
}

TEST_CASE("an unlocked second timeline is dragged, or moved by a number", "[gui]") {
  Fixture f;
  f.compare();
  const Document& main = f.window.explorer().document();
  const auto lag = [&] { return f.window.explorer().other()->document.start(0) - main.start(0); };
  CHECK(lag() == 0);
  CHECK(f.window.execute("offset -20 us").isEmpty());
  CHECK(lag() == -20'000'000);
  CHECK(f.window.execute("offset soon").contains("soon"));
  f.window.execute("align step");
  const QPoint slice = f.slice_pixel();  // the row of the second timeline is below it
  const QPoint at{slice.x(), slice.y() + f.view().px(22)}, to{at.x() + 60, at.y()};
  const auto drag = [&] {
    QTest::mousePress(&f.window.timeline(), Qt::LeftButton, {}, at);
    QTest::mouseMove(&f.window.timeline(), {at.x() + 20, at.y()});
    QTest::mouseMove(&f.window.timeline(), to);
    QTest::mouseRelease(&f.window.timeline(), Qt::LeftButton, {}, to);
  };
  drag();  // locked: that only moves the view
  CHECK(lag() == 0);
  f.window.execute("fit");
  f.key(Qt::Key_L);
  CHECK(lag() == 0);
  drag();
  const Regions parts = regions(f.window.timeline().picture(), f.view(), f.window.explorer().layout());
  CHECK(lag() == time_at(parts, f.view(), to.x()) - time_at(parts, f.view(), at.x()));
  QString all;
  for (const QLabel* l : f.window.statusBar()->findChildren<QLabel*>()) all += l->text();
  CHECK(all.contains("align manual"));
}

TEST_CASE("ops are found by how far they are off, and ranges by their times", "[gui]") {
  Fixture f;
  f.compare();
  CHECK(f.window.execute("find_errors 20").isEmpty());
  const auto& errors = f.window.explorer().other()->errors;
  CHECK(f.view().found.size() == 260);  // every fifth of 1300 is a third shorter
  for (const EventIndex e : f.view().found) CHECK(std::abs(std::expm1(errors[e])) >= 0.2);
  CHECK(f.window.execute("range 1 ms to 1.5 ms").isEmpty());
  CHECK(f.view().range == TimeRange{1'000'000'000, 1'500'000'000});
  const auto* found = f.window.findChild<QTableWidget*>("found");
  REQUIRE(found->rowCount() == 260);
  f.window.findChild<QTableWidget*>("found")->sortByColumn(3, Qt::DescendingOrder);
  const auto duration = [&](int row) {
    const auto& d = f.window.explorer().document();
    const auto e = static_cast<EventIndex>(found->item(row, 0)->data(Qt::UserRole).toULongLong());
    return d.end(e) - d.start(e);
  };
  CHECK(duration(0) >= duration(1));
  CHECK(duration(1) >= duration(259));
}

TEST_CASE("the tree of lanes folds, pins and goes to rows by keyboard", "[gui]") {
  Fixture f;
  f.open();
  f.window.execute("show_panel tracks");
  auto* tree = f.window.findChild<QTreeWidget*>("tracks");
  REQUIRE(tree != nullptr);
  REQUIRE(tree->topLevelItemCount() == 2);
  tree->setFocus();
  tree->setCurrentItem(tree->topLevelItem(0));
  const std::size_t rows = f.window.explorer().layout().rows.size();
  QTest::keyClick(tree, Qt::Key_Left);
  CHECK(f.window.explorer().layout().rows.size() < rows);
  QTest::keyClick(tree, Qt::Key_Right);
  CHECK(f.window.explorer().layout().rows.size() == rows);
  tree->setCurrentItem(tree->topLevelItem(1)->child(0));
  QTest::keyClick(tree, Qt::Key_Space);
  REQUIRE(f.view().pinned.size() == 1);
  CHECK(tree->topLevelItem(1)->child(0)->checkState(0) == Qt::Checked);
  f.window.execute("fold");
  CHECK_FALSE(tree->topLevelItem(0)->isExpanded());
  f.window.resize(900, 420);
  tree->topLevelItem(1)->setExpanded(true);
  f.view().scroll = 0;
  QTest::keyClick(tree, Qt::Key_Return);
  CHECK(f.view().folded.size() == 1);
}

TEST_CASE("a rectangle in the scatter finds its ops in the timeline", "[gui]") {
  Fixture f;
  f.compare();
  f.window.execute("show_panel scatter");
  auto* view = f.window.findChild<QWidget*>("durations of matched ops");
  QTest::mousePress(view, Qt::LeftButton, {}, {70, 15});
  QTest::mouseRelease(view, Qt::LeftButton, {}, {view->width() - 15, view->height() - 45});
  CHECK(f.view().found.size() > 100);
}

TEST_CASE("the command palette finds by words and runs with Enter", "[gui]") {
  Fixture f;
  f.open();
  f.key(Qt::Key_P, Qt::ControlModifier | Qt::ShiftModifier);
  auto* dialog = f.window.findChild<QDialog*>("chooser");
  REQUIRE(dialog != nullptr);
  auto* line = dialog->findChild<QLineEdit*>();
  QTest::keyClicks(line, "colour slack");
  QTest::keyClick(line, Qt::Key_Return);
  CHECK(f.view().colour_by == ColourBy::Slack);
}

TEST_CASE("a dropped file opens, a second one is compared", "[gui]") {
  Fixture f;
  QMimeData data;
  data.setUrls({QUrl::fromLocalFile(f.predicted), QUrl::fromLocalFile(f.measured)});
  QDragEnterEvent enter{QPoint{300, 300}, Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier};
  QApplication::sendEvent(&f.window, &enter);
  CHECK(enter.isAccepted());
  QDropEvent drop{QPointF{300, 300}, Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier};
  QApplication::sendEvent(&f.window, &drop);
  f.window.wait();
  CHECK(f.window.explorer().is_open());
  CHECK(f.window.explorer().other() != nullptr);
}

TEST_CASE("a damaged file leaves the window as it was and says why", "[gui]") {
  Fixture f;
  f.open();
  const QString bad = f.folder.filePath("bad.json");
  write_file_atomically(bad.toStdString(), "{\"traceEvents\": 5");
  f.window.open(bad);
  f.window.wait();
  CHECK(f.window.log_text().contains("cannot read"));
  CHECK(f.window.statusBar()->currentMessage().contains("cannot read"));
  CHECK(f.window.explorer().is_open());
  f.window.open(f.folder.filePath("missing.orrery"));
  f.window.wait();
  CHECK(f.window.log_text().contains("missing.orrery"));
}

TEST_CASE("a workspace brings back files and view", "[gui]") {
  Fixture f;
  f.compare();
  f.window.execute("colour_by layer; zoom_in; mark; dark");
  const View before = f.view();
  const QString path = f.folder.filePath("w.orrery-workspace");
  CHECK(f.window.execute("save_workspace " + path).isEmpty());
  f.window.execute("dark; colour_by class; end_comparison; fit");
  CHECK(f.window.execute("open_workspace " + path).isEmpty());
  f.window.wait();
  CHECK(f.view().time == before.time);
  CHECK(f.view().colour_by == ColourBy::Layer);
  CHECK(f.view().theme == ThemeName::Dark);
  CHECK(f.view().marks == before.marks);
  CHECK(f.window.explorer().other() != nullptr);
}

TEST_CASE("commands of --exec do what menus do, and unknown ones are named", "[gui]") {
  Fixture f;
  const QString picture = f.folder.filePath("p.png"), svg = f.folder.filePath("p.svg"),
                shot = f.folder.filePath("s.png");
  CHECK(f.window
            .run_script("open " + f.predicted + "; compare " + f.measured + "; colour_error; picture " + picture +
                        "; picture " + svg + "; screenshot " + shot)
            .isEmpty());
  for (const QString& p : {picture, svg, shot}) CHECK(QFile::exists(p));
  CHECK(f.window.execute("colur_by class").contains("did you mean 'colour_by'"));
  CHECK(f.window.execute("colour_by wrong").contains("known words"));
  CHECK(f.window.execute("open").contains("needs an argument"));
}

TEST_CASE("a slider simulates again, the command can be copied, and a problem is shown", "[gui]") {
  Fixture f;
  auto* panel = f.window.findChild<WhatIfPanel*>();
  REQUIRE(panel != nullptr);
  CHECK(f.window.run_script("what_if fake").isEmpty());
  REQUIRE(f.window.explorer().is_open());
  CHECK(f.window.explorer().other() == nullptr);
  const std::int64_t base = f.window.explorer().document().end();
  panel->set_factor("link.bandwidth", 2);
  CHECK(panel->command() == "orrery simulate fake --what-if link.bandwidth=x2");
  f.window.wait();
  REQUIRE(f.window.explorer().other() != nullptr);
  CHECK(double(f.window.explorer().other()->document.end()) == Approx(double(base) / 2).epsilon(0.02));
  CHECK_FALSE(f.view().is_stale);
  panel->set_option("workload.train.batch", "no");
  f.window.wait();
  QString texts;
  for (const QLabel* l : panel->findChildren<QLabel*>()) texts += l->text();
  CHECK(texts.contains("batch is 'no'"));
}

TEST_CASE("a what-if can be undone and done again", "[gui]") {
  Fixture f;
  CHECK(
      f.window.run_script("what_if fake; what_if_set link.bandwidth=x2; what_if_set workload.train.batch=8").isEmpty());
  auto* panel = f.window.findChild<WhatIfPanel*>();
  const WhatIfState last = panel->state();
  CHECK(f.window.run_script("undo").isEmpty());
  CHECK(panel->state() == WhatIfState{"fake", {}, {{"link.bandwidth", 2}}});
  CHECK(panel->findChild<QLineEdit*>("option workload.train.batch")->text() == "4");
  CHECK(f.window.run_script("undo").isEmpty());
  CHECK(panel->state() == WhatIfState{"fake", {}, {}});
  CHECK(panel->findChild<QSlider*>("factor link.bandwidth")->value() == 0);
  CHECK(panel->command() == "orrery simulate fake");
  CHECK_FALSE(f.window.actions().qt_action("undo")->isEnabled());
  CHECK(f.window.run_script("redo; redo").isEmpty());
  CHECK(panel->state() == last);
  CHECK(double(f.window.explorer().other()->document.end()) ==
        Approx(double(f.window.explorer().document().end()) / 2).epsilon(0.02));
}

TEST_CASE("the guided tour goes through all steps on the example", "[gui]") {
  Fixture f;
  f.window.open_example();
  f.window.wait();
  REQUIRE(f.window.explorer().other() != nullptr);
  auto* tour = f.window.findChild<Tour*>();
  tour->begin();
  for (std::size_t i = 0; i < Tour::steps().size(); ++i) {
    CHECK(tour->isVisible());
    CHECK(tour->step() == static_cast<int>(i));
    tour->show_step(tour->step() + 1);
  }
  CHECK_FALSE(tour->isVisible());
  CHECK_FALSE(f.window.log_text().contains("problem"));
}

TEST_CASE("the window can be drawn at every scale, in both themes, at any size", "[gui]") {
  Fixture f;
  f.compare();
  for (const QSize size : {QSize{700, 420}, QSize{1200, 800}, QSize{1900, 1000}}) {
    f.window.resize(size);
    for (int i = 0; i < 4; ++i) f.window.execute("larger");
    CHECK(f.view().scale == Approx(2));
    f.window.execute("dark");
    CHECK_FALSE(f.window.grab().isNull());
    f.window.execute("normal_size");
    CHECK(f.view().scale == Approx(1));
  }
}

TEST_CASE("panels take the colours of the theme, and boxes say what holds", "[gui]") {
  Fixture f;
  f.compare();
  const auto brightness = [&](const char* dock) {
    const auto* panel = f.window.findChild<QDockWidget*>(dock);
    REQUIRE(panel != nullptr);
    return panel->widget()->grab().toImage().pixelColor(2, panel->widget()->height() / 2).lightness();
  };
  CHECK(brightness("dock_details") > 200);
  f.window.execute("dark; colour_by slack");
  CHECK(brightness("dock_details") < 80);
  CHECK(f.window.findChild<QComboBox*>("colour_by")->currentText() == "slack");
}

TEST_CASE("everything that takes input has a name for screen readers and can be reached by keyboard", "[gui]") {
  Fixture f;
  f.compare();
  for (const QWidget* w : f.window.findChildren<QWidget*>()) {
    const bool takes_input =
        qobject_cast<const QTableWidget*>(w) != nullptr || qobject_cast<const QComboBox*>(w) != nullptr ||
        qobject_cast<const QSlider*>(w) != nullptr ||
        (qobject_cast<const QLineEdit*>(w) != nullptr && qobject_cast<const QComboBox*>(w->parentWidget()) == nullptr);
    if (!takes_input) continue;
    INFO(w->objectName().toStdString() << " in " << w->parentWidget()->objectName().toStdString());
    CHECK_FALSE(w->accessibleName().isEmpty());
    CHECK((w->focusPolicy() & Qt::TabFocus) != 0);
  }
  QAccessibleInterface* canvas = QAccessible::queryAccessibleInterface(&f.window.timeline());
  REQUIRE(canvas != nullptr);
  CHECK(canvas->text(QAccessible::Name) == "timeline");
  CHECK(canvas->text(QAccessible::Description).contains("selected"));
}

TEST_CASE("the timeline of the window is the picture of `trace render`, pixel by pixel", "[gui]") {
  Fixture f;
  f.open();
  f.window.timeline().clearFocus();
  f.window.setFocus();
  const Rect r = f.window.timeline().picture();
  Font font;
  const Image expected = render_image(f.window.explorer(), r.w, r.h, font);
  const QImage shown = f.window.timeline().grab().toImage().convertToFormat(QImage::Format_RGB32);
  Image actual{shown.width(), shown.height(), 0};
  for (int y = 0; y < shown.height(); ++y)
    std::copy_n(reinterpret_cast<const Color*>(shown.constScanLine(y)), shown.width(), actual.line(y));
  // The frame of the keyboard focus may be there.
  CHECK(different_pixels(expected, actual, 2) <= std::size_t(2 * (r.w + r.h)));
}

TEST_CASE("pictures are those that were looked at", "[gui]") {
  // After an intended change, ORRERY_UPDATE_GOLDEN=1 writes the files again: look at them.
  Fixture f;
  f.compare();
  Font font;
  for (const auto& [name, commands] :
       {std::pair{"lanes", "fit"},
        {"overlay_dark", "dark; compare_mode overlay; zoom_in; zoom_in; zoom_in; zoom_in; zoom_in; zoom_in"},
        {"error", "dark; compare_mode lanes; colour_error; fit"}}) {
    CHECK(f.window.execute(commands).isEmpty());
    const Image image = render_image(f.window.explorer(), 900, 500, font);
    const std::string path = std::string{ORRERY_SOURCE_DIR} + "/tests/golden/gui_" + name + ".png";
    if (qEnvironmentVariableIsSet("ORRERY_UPDATE_GOLDEN")) write_file_atomically(path, write_png(image));
    INFO(path);
    CHECK(different_pixels(read_png(read_file(path), path), image, 8) <= image.pixels.size() / 1000);
  }
}
