// SPDX-License-Identifier: Apache-2.0
// Every line of the menus does what it says. A table of all: an action that is not in it fails the test.
#include <QClipboard>
#include <QFileDialog>
#include <QHeaderView>
#include <QInputDialog>
#include <QMenu>
#include <QMenuBar>
#include <QTimer>
#include <QToolButton>

#include "tests/gui_window_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

using Effect = std::function<bool(Fixture&)>;

/// What has to hold for an action to be tested, as commands, and what holds after it.
struct Line {
  const char* id;
  const char* before;
  Effect effect;
};

std::int64_t length(Fixture& f) { return f.view().time.length(); }
bool shows(Fixture& f, const char* dialog) { return f.window.findChild<QDialog*>(dialog) != nullptr; }
bool selects(Fixture& f, const char* name) {
  const auto& s = f.view().selected;
  return s && f.window.explorer().document().events().name(s->event) == name;
}

/// The passing mark is where an op begins.
bool marks(Fixture& f, const char* name) {
  const Document& d = f.window.explorer().document();
  for (const Mark& m : f.view().marks)
    if (m.label.empty()) return m.at == d.start(search(d, name).front());
  return false;
}

bool chooses(Fixture& f) { return shows(f, "chooser"); }

std::vector<Line> lines_of_file_and_view() {
  return {
      {"open_recent", "", chooses},
      {"stop", "", [](Fixture& f) { return !f.window.log_text().contains("stopped"); }},
      {"zoom_in", "fit", [](Fixture& f) { return length(f) < f.window.explorer().whole().length(); }},
      {"zoom_out", "fit; zoom_in; zoom_in",
       [](Fixture& f) { return length(f) > f.window.explorer().whole().length() / 2; }},
      {"pan_left", "fit; zoom_in; pan_right",
       [](Fixture& f) { return f.view().time.end < f.window.explorer().whole().end; }},
      {"pan_right", "fit; zoom_in; pan_left", [](Fixture& f) { return f.view().time.begin > 0; }},
      {"scroll_down", "resize 700x420; page_up; page_up", [](Fixture& f) { return f.view().scroll > 0; }},
      {"scroll_up", "page_up; page_up; page_up; scroll_down", [](Fixture& f) { return f.view().scroll == 0; }},
      {"page_down", "page_up; page_up; page_up", [](Fixture& f) { return f.view().scroll > 0; }},
      {"page_up", "page_up; page_up; page_down", [](Fixture& f) { return f.view().scroll == 0; }},
      {"fit", "resize 1200x800; zoom_in", [](Fixture& f) { return length(f) > f.window.explorer().whole().length(); }},
      {"search", "clear",
       [](Fixture& f) {
         return f.window.focusWidget() == f.window.findChild<QDockWidget*>("dock_search")->findChild<QLineEdit*>();
       }},
      {"focus", "search op7 all_reduce",
       [](Fixture& f) { return length(f) < f.window.explorer().whole().length() / 100; }},
      {"select_range", "search op7 all_reduce", [](Fixture& f) { return f.view().range.has_value(); }},
      {"clear", "search op7 all_reduce; select_range",
       [](Fixture& f) { return !f.view().selected && !f.view().range && f.view().found.empty(); }},
      {"fold", "", [](Fixture& f) { return f.view().folded.size() == 2; }},
      {"pin", "fold; search op7 all_reduce", [](Fixture& f) { return f.view().pinned.size() == 1; }},
  };
}

std::vector<Line> lines_of_look_and_go() {
  return {
      {"counters", "", [](Fixture& f) { return !f.view().show_counters; }},
      {"flows", "", [](Fixture& f) { return !f.view().show_flows; }},
      {"critical_path", "", [](Fixture& f) { return !f.view().show_critical_path; }},
      {"colour_by", "", chooses},
      {"group_by", "", chooses},
      {"dark", "",
       [](Fixture& f) {
         return f.view().theme == ThemeName::Dark && f.window.palette().window().color().lightness() < 80;
       }},
      {"larger", "normal_size", [](Fixture& f) { return f.view().scale == 1.25; }},
      {"smaller", "normal_size; larger; larger", [](Fixture& f) { return f.view().scale == Approx(1.25); }},
      {"normal_size", "larger", [](Fixture& f) { return f.view().scale == 1; }},
      {"drawer", "show_panel log", [](Fixture& f) { return f.window.findChild<QDockWidget*>("dock_log")->isHidden(); }},
      {"show_panel", "drawer", chooses},
      {"find_track", "", chooses},
      {"next_found", "search op7 all_reduce", [](Fixture& f) { return f.view().selected->event == f.view().found[1]; }},
      {"previous_found", "search op7 all_reduce; next_found",
       [](Fixture& f) { return f.view().selected->event == f.view().found[0]; }},
      {"next_slice", "search layers.0.op3", [](Fixture& f) { return selects(f, "layers.0.op4"); }},
      {"previous_slice", "search layers.0.op3", [](Fixture& f) { return selects(f, "layers.0.op2"); }},
      {"follow", "search layers.0.op6",
       [](Fixture& f) { return selects(f, "layers.0.op7") || selects(f, "layers.0.op8"); }},
      {"follow_back", "search layers.0.op7", [](Fixture& f) { return selects(f, "layers.0.op6"); }},
      {"bookmark", "search layers.0.op3", [](Fixture& f) { return f.view().marks.size() == 1; }},
      {"mark", "search layers.0.op5; mark; search layers.0.op7",
       [](Fixture& f) {
         // That at op5 is gone, the bookmark is not.
         const std::vector<Mark>& m = f.view().marks;
         return m.size() == 2 && m[0].label == "1" && m[1].label.empty();
       }},
      {"undo", "", [](Fixture& f) { return marks(f, "layers.0.op5"); }},
      {"redo", "", [](Fixture& f) { return marks(f, "layers.0.op7"); }},
      {"next_mark", "fit; zoom_in; zoom_in; zoom_in; pan_right; pan_right",
       [](Fixture& f) {
         const TimeRange t = f.view().time;
         return std::abs((t.begin + t.end) / 2 - f.view().marks[0].at) <= t.length() / 100;
       }},
      {"next_worst", "fit; clear", [](Fixture& f) { return f.view().selected.has_value(); }},
      {"previous_worst", "clear; next_worst; next_worst", [](Fixture& f) { return f.view().selected.has_value(); }},
  };
}

std::vector<Line> lines_of_compare_and_help() {
  return {
      {"overlay", "compare_mode lanes", [](Fixture& f) { return f.view().compare_mode == CompareMode::Overlay; }},
      {"blink", "compare_mode lanes; blink",
       [](Fixture& f) { return f.view().compare_mode == CompareMode::Blink && f.view().blink_other; }},
      {"colour_error", "colour_by class", [](Fixture& f) { return f.view().colour_by == ColourBy::Error; }},
      {"compare_mode", "", chooses},
      {"error_channel", "", chooses},
      {"align", "", chooses},
      {"lock_alignment", "align step",
       [](Fixture& f) { return !f.window.actions().find("lock_alignment")->is_checked(); }},
      {"shift_earlier", "align step; fit",
       [](Fixture& f) { return f.window.explorer().other()->document.begin() < 0; }},
      {"shift_later", "align step; shift_later; shift_later",
       [](Fixture& f) { return f.window.explorer().other()->document.start(0) > 0; }},
      {"end_comparison", "", [](Fixture& f) { return f.window.explorer().other() == nullptr; }},
      {"what_if", "", chooses},
      {"what_if_copy", "what_if fake; what_if_set link.bandwidth=x2",
       [](Fixture&) {
         return QApplication::clipboard()->text() == "orrery simulate fake --what-if link.bandwidth=x2";
       }},
      {"what_if_keep", "what_if fake; what_if_set link.bandwidth=x2",
       [](Fixture& f) {
         // What was laid beside is now the timeline itself.
         return f.window.explorer().other() == nullptr &&
                f.window.findChild<WhatIfPanel*>()->is_base({"fake", {}, {{"link.bandwidth", 2}}});
       }},
      {"palette", "", chooses},
      {"keys", "", [](Fixture& f) { return shows(f, "keys_dialog"); }},
      {"tour", "", [](Fixture& f) { return f.window.findChild<Tour*>()->isVisible(); }},
      {"example", "end_comparison", [](Fixture& f) { return f.window.explorer().other() != nullptr; }},
  };
}

std::vector<Line> lines() {
  std::vector<Line> out = lines_of_file_and_view();
  for (const auto& more : {lines_of_look_and_go(), lines_of_compare_and_help()})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}

/// Those that are many of a kind are known by what their ids begin with.
bool is_of_family(Fixture& f, const QString& id) {
  const View& v = f.view();
  const QString word = id.section('_', -1);
  const auto is = [&](std::string_view is_word) { return word.toStdString() == is_word; };
  if (id.startsWith("colour_by_")) return is(word_of(v.colour_by));
  if (id.startsWith("compare_mode_")) return is(word_of(v.compare_mode));
  if (id.startsWith("error_channel_")) return is(word_of(v.error_channel));
  if (id.startsWith("align_")) return f.window.findChild<QComboBox*>("align")->currentText() == word;
  return id.startsWith("panel_") && f.window.findChild<QDockWidget*>("dock_" + id.mid(6))->isVisible();
}

void trigger(Fixture& f, const QString& id) {
  QAction* action = f.window.actions().qt_action(id);
  INFO(id.toStdString());
  REQUIRE(action != nullptr);
  REQUIRE(action->isEnabled());
  action->trigger();
  f.window.wait();
}

void close_dialogs(Fixture& f) {
  for (QDialog* d : f.window.findChildren<QDialog*>()) d->reject();
  QApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
}

}  // namespace

TEST_CASE("every line of the menus does what it says", "[gui]") {
  Fixture f;
  f.compare();
  std::set<QString> tested;
  for (const Action& a : f.window.actions().all()) {
    if (!a.id.startsWith("colour_by_") && !a.id.startsWith("compare_mode_") && !a.id.startsWith("align_") &&
        !a.id.startsWith("error_channel_") && !a.id.startsWith("panel_"))
      continue;
    trigger(f, a.id);
    INFO(a.id.toStdString());
    CHECK(is_of_family(f, a.id));
    tested.insert(a.id);
  }
  for (const Line& line : lines()) {
    INFO(line.id << " after " << line.before);
    REQUIRE(f.window.run_script(line.before).isEmpty());
    if (std::string_view{line.id} != "stop") {
      trigger(f, line.id);
    } else {
      CHECK_FALSE(f.window.actions().qt_action("stop")->isEnabled());  // nothing is being opened
    }
    CHECK(line.effect(f));
    close_dialogs(f);
    f.window.timeline().setFocus();
    tested.insert(line.id);
  }
  for (const Action& a : f.window.actions().all()) {
    INFO(a.id.toStdString());
    CHECK((tested.contains(a.id) || a.takes_argument || a.id == "quit"));
  }
}

TEST_CASE("actions that need a file or a word ask for it", "[gui]") {
  Fixture f;
  CHECK(f.window.run_script("open " + f.predicted + "; what_if fake").isEmpty());
  for (const Action& a : f.window.actions().all()) {
    if (!a.takes_argument) continue;
    QString asked;
    // The dialog for files has a loop of its own.
    QTimer::singleShot(0, &f.window, [&] {
      QWidget* dialog = QApplication::activeModalWidget();
      if (dialog == nullptr) return;
      asked = dialog->metaObject()->className();
      dialog->close();
    });
    INFO(a.id.toStdString());
    f.window.actions().qt_action(a.id)->trigger();
    QApplication::processEvents();
    CHECK((asked == "QFileDialog" || asked == "QInputDialog"));
  }
}

TEST_CASE("every key of the menus does what its line does", "[gui]") {
  Fixture f;
  f.compare();
  std::size_t keys = 0;
  for (const Action& a : f.window.actions().all()) {
    QAction* action = f.window.actions().qt_action(a.id);
    action->disconnect(&f.window);  // only counted here: some open dialogs
    action->setEnabled(true);
    int times = 0;
    const auto counted = QObject::connect(action, &QAction::triggered, &f.window, [&] { ++times; });
    for (const QKeySequence& key : action->shortcuts()) {
      INFO(a.id.toStdString() << " by " << key.toString().toStdString());
      REQUIRE(key.count() == 1);
      times = 0;
      f.key(key[0].key(), key[0].keyboardModifiers());
      CHECK(times == 1);
      ++keys;
    }
    QObject::disconnect(counted);
  }
  CHECK(keys > 50);
}

TEST_CASE("an action that fails says so and the window lives on", "[gui]") {
  Fixture f;
  QTimer::singleShot(0, &f.window, [&] {
    auto* dialog = f.window.findChild<QInputDialog*>();
    REQUIRE(dialog != nullptr);
    dialog->setTextValue("12x12");
    dialog->accept();
  });
  f.window.actions().qt_action("resize")->trigger();
  QApplication::processEvents();
  CHECK(f.window.statusBar()->currentMessage().contains("a size is WIDTHxHEIGHT"));
  CHECK(f.window.execute("group_by nothing").contains("known words: none"));
  CHECK(f.window.execute("what_if nothing").contains("known words: fake"));
  CHECK(f.window.run_script("what_if fake; what_if_set link.bandwidth=fast").contains("is no factor"));
  CHECK(f.window.run_script("what_if_set nothing=1").contains("known words"));
  CHECK(f.window.run_script("range 1 ms").contains("write it as 1.5 ms to 2 ms"));
  CHECK(f.window.run_script("range 2 ms to 1 ms").contains("end before it begins"));
  CHECK(f.window.run_script("find_errors 5").contains("no second timeline"));
}

TEST_CASE("nothing of the menus harms a window without a timeline", "[gui]") {
  Fixture f;
  for (const Action& a : f.window.actions().all()) {
    if (a.takes_argument || a.id == "quit" || a.id == "example") continue;
    INFO(a.id.toStdString());
    f.window.actions().qt_action(a.id)->trigger();
    close_dialogs(f);
    CHECK_FALSE(f.window.grab().isNull());
  }
}

TEST_CASE("the timeline has a menu at the pointer and at the key for it", "[gui]") {
  Fixture f;
  f.open();
  const QPoint at = f.slice_pixel();
  QContextMenuEvent e{QContextMenuEvent::Mouse, at, f.window.timeline().mapToGlobal(at)};
  QApplication::sendEvent(&f.window.timeline(), &e);
  auto* menu = f.window.findChild<QMenu*>("timeline_menu");
  REQUIRE(menu != nullptr);
  CHECK(menu->actions().size() >= 6);
  REQUIRE(f.view().selected);
  menu->actions().at(2)->trigger();
  CHECK(f.view().pinned.size() == 1);
  menu->close();
}

TEST_CASE("all texts of the window grow with its scale, rows of tables too", "[gui]") {
  Fixture f;
  f.compare();
  const auto* table = f.window.findChild<QTableWidget*>("details");
  const auto* box = f.window.findChild<QComboBox*>("colour_by");
  const int row = table->verticalHeader()->defaultSectionSize(), text = table->font().pixelSize();
  for (int i = 0; i < 4; ++i) f.window.execute("larger");
  QApplication::processEvents();
  CHECK(f.view().scale == Approx(2));
  CHECK(table->verticalHeader()->defaultSectionSize() == 2 * row);
  const auto* dock = f.window.findChild<QDockWidget*>("dock_details");
  const QWidget* title = dock->titleBarWidget();
  const auto* close = title->findChildren<QToolButton*>().back();
  CHECK(close->iconSize().height() >= 2 * text * 3 / 4);
  CHECK(title->height() >= 2 * text);
  const std::initializer_list<const QWidget*> all{table, box, title->findChild<QLabel*>(), f.window.menuBar(),
                                                  f.window.statusBar()};
  for (const QWidget* w : all) {
    INFO(w->metaObject()->className());
    CHECK(w->font().pixelSize() == 2 * text);
  }
  f.window.execute("normal_size");
  QApplication::processEvents();
  for (const QWidget* w : all) CHECK(w->font().pixelSize() == text);
}
