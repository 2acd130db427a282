// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch.hpp>

#include <QAccessible>
#include <QApplication>
#include <QComboBox>
#include <QDialog>
#include <QDir>
#include <QDockWidget>
#include <QDropEvent>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QMimeData>
#include <QNativeGestureEvent>
#include <QPointingDevice>
#include <QSettings>
#include <QSlider>
#include <QStandardPaths>
#include <QStatusBar>
#include <QTableWidget>
#include <QTemporaryDir>
#include <QTest>
#include <QTreeWidget>
#include <QWheelEvent>

#include "gui/window/main_window.hpp"
#include "gui/window/panel.hpp"
#include "gui/window/timeline_widget.hpp"
#include "gui/window/tour.hpp"
#include "gui/window/what_if_panel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/yaml.hpp"
#include "sim/timeline/trace_file.hpp"
#include "tests/gui_testing.hpp"

namespace orrery::testing {

using namespace orrery::gui;

/// A scenario of which the step takes so many nanoseconds as its only option says, times its only factor.
class FakeResimulator final : public Resimulator {
 public:
  std::vector<std::string> scenarios() const override { return {"fake", "llama3_70b_64"}; }
  std::vector<Knob> knobs(const std::string&) const override {
    return {{Knob::Kind::Factor, "link.bandwidth", "how fast links are", "1", {}},
            {Knob::Kind::Value, "workload.train.batch", "samples", "4", {}},
            {Knob::Kind::Choice, "collectives", "how", "closed_form", {"closed_form", "detailed"}}};
  }
  Trace simulate(const WhatIfState& s, const std::function<void()>&) override {
    if (s.settings.contains("workload.train.batch") && s.settings.at("workload.train.batch") == "no")
      throw UserError{"batch is 'no'"};
    Trace t = testing::large_trace(2, 130);
    const auto it = s.factors.find("link.bandwidth");
    const double stretch = it == s.factors.end() ? 1 : 1 / it->second;
    for (Span& span : t.timeline.spans)
      for (std::int64_t* at : {&span.start_ps, &span.end_ps}) *at = static_cast<std::int64_t>(double(*at) * stretch);
    t.timeline.makespan_ps = static_cast<std::int64_t>(double(t.timeline.makespan_ps) * stretch);
    return t;
  }
};

/// A window with a predicted and a measured file on disk.
struct Fixture {
  QTemporaryDir folder;
  QString predicted = folder.filePath("predicted.orrery"), measured = folder.filePath("measured.orrery");
  FakeResimulator resimulator;
  MainWindow window{&resimulator};

  Fixture() {
    Trace t = testing::large_trace(2, 650);
    t.timeline.memory = {{0, RankId{0}, Tier::Device, 1 << 20},
                         {t.timeline.makespan_ps / 2, RankId{0}, Tier::Device, 3 << 20}};
    write_trace(t, predicted.toStdString());
    // 5 % longer; every fifth op a third shorter, so that errors have both signs.
    for (Span& s : t.timeline.spans) {
      s.start_ps += s.start_ps / 20;
      s.end_ps += s.end_ps / 20;
      if (s.op.value % 5 == 4) s.end_ps -= (s.end_ps - s.start_ps) / 3;
    }
    t.timeline.makespan_ps += t.timeline.makespan_ps / 20;
    t.timeline.instance_ends_ps = {t.timeline.makespan_ps};
    t.timeline.source = TimelineSource::Measured;
    write_trace(t, measured.toStdString());
    window.resize(1200, 800);
    window.show();
    window.activateWindow();
    REQUIRE(QTest::qWaitForWindowActive(&window));
  }
  void open() {
    window.open(predicted);
    window.wait();
    REQUIRE(window.explorer().is_open());
    window.timeline().setFocus();
  }
  void compare() {
    open();
    window.compare(measured);
    window.wait();
    REQUIRE(window.explorer().other() != nullptr);
  }
  void key(Qt::Key k, Qt::KeyboardModifiers m = Qt::NoModifier) {
    window.timeline().setFocus();
    QTest::keyClick(&window.timeline(), k, m);
    QApplication::processEvents();
  }
  View& view() { return window.explorer().view(); }

  /// The middle of some slice that can be seen.
  QPoint slice_pixel() {
    const Scene scene = window.explorer().scene();
    const Rect r = window.timeline().picture();
    for (int y = 80; y < r.h - 40; y += 5)
      for (int x = 220; x < r.w - 20; x += 3)
        if (const Hit hit = hit_test(scene, r, x, y); hit.slice && hit.row->kind == RowKind::Lane) return {x, y};
    FAIL("no slice to be seen");
    return {};
  }
};

}  // namespace orrery::testing
