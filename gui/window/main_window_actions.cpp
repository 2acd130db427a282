// SPDX-License-Identifier: Apache-2.0
// The table of actions: menus, keys, the command palette and `--exec` come from it.
#include <QApplication>
#include <QComboBox>
#include <QDockWidget>
#include <QLineEdit>
#include <QStatusBar>

#include "gui/window/loader.hpp"
#include "gui/window/main_window.hpp"
#include "gui/window/panel.hpp"
#include "gui/window/texts.hpp"
#include "gui/window/timeline_widget.hpp"
#include "gui/window/tour.hpp"
#include "sim/base/error.hpp"

namespace orrery::gui {
void MainWindow::add_actions() {
  add_file_actions();
  add_edit_actions();
  add_view_actions();
  add_look_actions();
  add_size_actions();
  add_go_actions();
  add_mark_actions();
  add_compare_actions();
  add_alignment_actions();
  add_what_if_actions();
  add_help_actions();
}

namespace {

/// An action of the menu File. One that takes an argument asks for a file.
Action file_action(const char* id, const char* title, const char* keys, std::function<void(const QString&)> run,
                   bool takes_argument, std::function<bool()> is_enabled = {}) {
  return {id, "File", title, keys, std::move(run), takes_argument, {}, std::move(is_enabled)};
}

}  // namespace

void MainWindow::add_file_actions() {
  const auto is_open = [this] { return explorer_.is_open(); };
  const auto is_loading = [this] { return loader_->is_busy(); };
  const auto with_file = [this](const QString& title, bool saves, const QString& filter, auto work) {
    return [=, this](const QString& given) {
      const QString path = given.isEmpty() ? ask_file(title, saves, filter) : given;
      if (!path.isEmpty()) guarded([&] { work(path); });
    };
  };
  const auto grab_window = [this](const QString& p) {
    wait();
    if (!grab().save(p)) throw DeviceError{"cannot write " + p.toStdString()};
  };
  const QString traces = "Traces (*.orrery *.pftrace *.perfetto-trace *.json *.json.gz *.gz *.zst *.sqlite)";
  const QString workspaces = "Workspaces (*.orrery-workspace)";
  const auto opens = with_file("Open a timeline", false, traces, [this](const QString& p) { open(p); });
  const auto compares = with_file("Compare with", false, traces, [this](const QString& p) { compare(p); });
  const auto saves = with_file("Save the workspace", true, workspaces, [this](const QString& p) { save_workspace(p); });
  const auto restores =
      with_file("Restore a workspace", false, workspaces, [this](const QString& p) { open_workspace(p); });
  const auto draws =
      with_file("Save a picture", true, "Pictures (*.png *.svg)", [this](const QString& p) { screenshot(p); });
  const auto grabs = with_file("Save a picture", true, "Pictures (*.png)", grab_window);
  const auto opens_recent = [this](const QString& given) {
    if (!given.isEmpty()) return open(given);
    const QStringList files = recent();
    choose_from("Open one of the last files", files, [this, files](int i) { open(files[i]); });
  };
  const auto stops = [this](const QString&) {
    if (!loader_->is_busy()) return;
    log(QString{"stopped opening %1"}.arg(loader_->state().name));
    loader_->stop();
  };
  const auto quits = [this](const QString&) {
    close();
    QApplication::quit();
  };
  actions_.add(file_action("open", "Open a timeline", "Ctrl+O", opens, true));
  actions_.add(file_action("compare", "Compare with a second timeline", "Ctrl+Shift+O", compares, true, is_open));
  actions_.add(file_action("open_recent", "Open one of the last files", "Ctrl+R", opens_recent, false));
  actions_.add(file_action("save_workspace", "Save the workspace", "Ctrl+S", saves, true, is_open));
  actions_.add(file_action("open_workspace", "Restore a workspace", "", restores, true));
  actions_.add(file_action("picture", "Save a picture of the timeline", "", draws, true, is_open));
  actions_.add(file_action("screenshot", "Save a picture of the window", "", grabs, true));
  actions_.add(file_action("stop", "Stop opening", "Ctrl+.", stops, false, is_loading));
  actions_.add(file_action("quit", "Quit", "Ctrl+Q", quits, false));
}

void MainWindow::add_view_actions() {
  const auto is_open = [this] { return explorer_.is_open(); };
  const auto add = [&](const char* id, const char* title, const char* keys, std::function<void()> work) {
    actions_.add({id,
                  "View",
                  title,
                  keys,
                  [this, work](const QString&) {
                    if (!explorer_.is_open()) return;
                    work();
                    view_changed();
                  },
                  false,
                  {},
                  is_open});
  };
  add("zoom_in", "Zoom in", "W; +", [this] { zoom(0.7); });
  add("zoom_out", "Zoom out", "S; -", [this] { zoom(1 / 0.7); });
  add("pan_left", "Earlier", "A; Left", [this] { pan(-0.15); });
  add("pan_right", "Later", "D; Right", [this] { pan(0.15); });
  add("scroll_up", "Rows up", "Up", [this] { explorer_.view().scroll -= explorer_.view().px(66); });
  add("scroll_down", "Rows down", "Down", [this] { explorer_.view().scroll += explorer_.view().px(66); });
  add("page_up", "A page up", "PgUp", [this] { explorer_.view().scroll -= timeline_->picture().h / 2; });
  add("page_down", "A page down", "PgDown", [this] { explorer_.view().scroll += timeline_->picture().h / 2; });
  add("fit", "Show all", "0; Home", [this] { explorer_.fit(); });
  add("focus", "Look at the selection", "F", [this] { explorer_.focus(); });
  add("select_range", "Select the range of the slice", "R", [this] {
    if (!explorer_.view().selected || explorer_.view().selected->side != Side::Main) return;
    const EventIndex e = explorer_.view().selected->event;
    explorer_.view().range = TimeRange{explorer_.document().start(e), explorer_.document().end(e)};
    range_changed();
  });
  add("clear", "Clear selection and range", "Esc", [this] {
    explorer_.view().selected.reset();
    explorer_.view().range.reset();
    explorer_.view().found.clear();
    fill_search();
    selection_changed();
    range_changed();
  });
  add("fold", "Fold or unfold all ranks", "Shift+F", [this] {
    View& v = explorer_.view();
    const bool folds = v.folded.empty();
    v.folded.clear();
    for (std::uint32_t o = 0; folds && o < explorer_.document().owners().size(); ++o)
      v.folded.insert(Row{.kind = RowKind::Owner, .index = o}.key());
  });
  add("pin", "Pin the lane of the selection", "P", [this] {
    if (!explorer_.view().selected || explorer_.view().selected->side != Side::Main) return;
    explorer_.toggle_pin(
        Row{.kind = RowKind::Lane, .index = explorer_.document().place(explorer_.view().selected->event).track}.key());
  });
}

void MainWindow::add_choices(const QString& menu, const QString& id, const QString& title, const QStringList& words,
                             const std::function<void(const QString&)>& choose,
                             const std::function<QString()>& current) {
  actions_.add({id, menu, title, "", [=, this](const QString& given) {
                  if (!given.isEmpty()) {
                    choose(given);
                    return view_changed();
                  }
                  choose_from(title, words, [=, this](int i) {
                    choose(words[i]);
                    view_changed();
                  });
                }});
  for (const QString& word : words)
    actions_.add({id + "_" + word, menu, title + ": " + word, "",
                  [=, this](const QString&) {
                    choose(word);
                    view_changed();
                  },
                  false, [=] { return current() == word; }});
}

void MainWindow::add_look_actions() {
  const auto toggle = [&](const char* id, const char* title, const char* keys, bool View::*flag) {
    actions_.add({id, "Look", title, keys,
                  [this, flag](const QString&) {
                    explorer_.view().*flag = !(explorer_.view().*flag);
                    view_changed();
                  },
                  false, [this, flag] { return explorer_.view().*flag; }});
  };
  toggle("counters", "Counters", "C", &View::show_counters);
  toggle("flows", "Arrows", "Shift+A", &View::show_flows);
  toggle("critical_path", "Critical path", "Shift+C", &View::show_critical_path);
  add_choices(
      "Look", "colour_by", "Colour by", words(ColourBy{}),
      [this](const QString& w) { explorer_.view().colour_by = value_of<ColourBy>(w); },
      [this] { return qt(word_of(explorer_.view().colour_by)); });
  actions_.add({"group_by", "Look", "Group ranks", "G", [this](const QString& given) {
                  QStringList names{"none"};
                  if (explorer_.is_open())
                    for (const std::string& g : groupings_of(explorer_.document())) names << qt(g);
                  const auto choose = [this, names](const QString& name) {
                    check_word(name, names);
                    explorer_.view().group_by = name == "none" ? std::string{} : name.toStdString();
                    view_changed();
                  };
                  if (!given.isEmpty()) return choose(given);
                  choose_from("Group ranks by", names, [=](int i) { choose(names[i]); });
                }});
  actions_.add({"dark", "Look", "Dark", "Ctrl+D",
                [this](const QString&) {
                  View& v = explorer_.view();
                  v.theme = v.theme == ThemeName::Dark ? ThemeName::Light : ThemeName::Dark;
                  look_changed();
                },
                false, [this] { return explorer_.view().theme == ThemeName::Dark; }});
}

void MainWindow::add_size_actions() {
  actions_.add({"resize", "Look", "Size of the window", "",
                [this](const QString& given) {
                  if (given.isEmpty()) return ask_text("resize", "WIDTHxHEIGHT, such as 1600x950");
                  const QStringList sides = given.split('x');
                  const int w = sides.value(0).toInt(), h = sides.value(1).toInt();
                  if (w < 200 || h < 150) throw UserError{"a size is WIDTHxHEIGHT, such as 1600x950"};
                  resize(w, h);
                },
                true});
  const auto scale = [this](double factor) {
    View& v = explorer_.view();
    v.scale = factor == 0 ? 1 : std::clamp(v.scale * factor, 1.0, 2.0);
    look_changed();
  };
  actions_.add({"larger", "Look", "Larger", "Ctrl+=; Ctrl++", [=](const QString&) { scale(1.25); }});
  actions_.add({"smaller", "Look", "Smaller", "Ctrl+-", [=](const QString&) { scale(0.8); }});
  actions_.add({"normal_size", "Look", "Normal size", "Ctrl+0", [=](const QString&) { scale(0); }});
  actions_.add({"drawer", "Look", "Panels", "Q", [this](const QString&) {
                  const QList<QDockWidget*> docks = findChildren<QDockWidget*>();
                  const bool hides =
                      std::any_of(docks.begin(), docks.end(), [](QDockWidget* d) { return !d->isHidden(); });
                  for (QDockWidget* d : docks) d->setVisible(!hides);
                }});
  for (const auto& [id, panel] : panels_) {
    auto* dock = qobject_cast<QDockWidget*>(panel->parentWidget());
    actions_.add({"panel_" + id, "Look", "Panel: " + dock->windowTitle(), "", [this, dock](const QString&) {
                    dock->show();
                    dock->raise();
                    tour_->raise();
                  }});
  }
  actions_.add({"show_panel", "Look", "Show a panel", "", [this](const QString& given) {
                  QStringList ids;
                  for (const auto& [id, panel] : panels_) ids << id;
                  if (given.isEmpty())
                    return choose_from("Show a panel", ids, [=, this](int i) { execute("panel_" + ids[i]); });
                  actions_.execute("panel_" + given);
                }});
}

/// Something to do with an open timeline, from the menu "Go".
void MainWindow::add_go_action(const char* id, const char* title, const char* keys, std::function<void()> work) {
  actions_.add({id,
                "Go",
                title,
                keys,
                [this, work = std::move(work)](const QString&) {
                  if (explorer_.is_open()) work();
                },
                false,
                {},
                [this] { return explorer_.is_open(); }});
}

void MainWindow::add_go_actions() {
  actions_.add({"range", "Go", "Select a range of time", "Shift+R",
                [this](const QString& given) {
                  given.isEmpty() ? ask_text("range", "from and to, such as 1.5 ms to 2 ms") : select_times(given);
                },
                true});
  actions_.add({"search", "Go", "Search ops", "/; Ctrl+F", [this](const QString& given) {
                  if (!given.isEmpty()) return search(given);
                  qobject_cast<QDockWidget*>(panels_["search"]->parentWidget())->show();
                  qobject_cast<QDockWidget*>(panels_["search"]->parentWidget())->raise();
                  search_->setFocus();
                  search_->selectAll();
                }});
  add_go_action("find_track", "Find a lane", "Ctrl+P", [this] { find_track(); });
  add_go_action("next_found", "Next found", "F3", [this] { step_found(1); });
  add_go_action("previous_found", "Previous found", "Shift+F3", [this] { step_found(-1); });
  add_go_action("next_slice", "Next op of the lane", ".", [this] { select(explorer_.step(1)); });
  add_go_action("previous_slice", "Previous op of the lane", ",", [this] { select(explorer_.step(-1)); });
  add_go_action("follow", "What waits for it", "]", [this] { select(explorer_.follow(1)); });
  add_go_action("follow_back", "What it waited for", "[", [this] { select(explorer_.follow(-1)); });
  add_go_action("next_worst", "Next worst op", "N", [this] { step_worst(1); });
  add_go_action("previous_worst", "Previous worst op", "Shift+N", [this] { step_worst(-1); });
}

}  // namespace orrery::gui
