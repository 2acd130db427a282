// SPDX-License-Identifier: Apache-2.0
// Actions of the menus Compare, What if and Help; those of File, View, Look and Go are in main_window_actions.cpp.
#include <QApplication>
#include <QClipboard>
#include <QUndoStack>
#include <algorithm>
#include <functional>
#include <utility>

#include "gui/window/background.hpp"
#include "gui/window/main_window.hpp"
#include "gui/window/texts.hpp"
#include "gui/window/timeline_widget.hpp"
#include "gui/window/tour.hpp"
#include "gui/window/what_if_panel.hpp"
#include "sim/base/error.hpp"

namespace orrery::gui {

void MainWindow::add_edit_actions() {
  const auto add = [&](const char* id, const char* title, const char* keys, std::function<void()> work,
                       std::function<bool()> can) {
    actions_.add(
        {id, "Edit", title, keys, [work = std::move(work)](const QString&) { work(); }, false, {}, std::move(can)});
  };
  add(
      "undo", "Undo a mark or a what-if", "Ctrl+Z", [this] { undo_->undo(); }, [this] { return undo_->canUndo(); });
  add(
      "redo", "Do it again", "Ctrl+Y; Ctrl+Shift+Z", [this] { undo_->redo(); }, [this] { return undo_->canRedo(); });
}

/// A mark without a label lasts until the next one is set.
void MainWindow::add_mark_actions() {
  const auto toggle = [this](bool lasts) {
    const View& v = explorer_.view();
    const bool has_event = v.selected && v.selected->side == Side::Main;
    const std::int64_t at =
        has_event ? explorer_.document().start(v.selected->event) : v.time.begin + v.time.length() / 2;
    std::vector<Mark> marks = v.marks;
    const bool was_there = std::erase_if(marks, [&](const Mark& m) { return m.at == at; }) > 0;
    if (!lasts) std::erase_if(marks, [](const Mark& m) { return m.label.empty(); });
    const auto lasting = std::count_if(marks.begin(), marks.end(), [](const Mark& m) { return !m.label.empty(); });
    if (!was_there) marks.push_back({at, lasts ? std::to_string(lasting + 1) : std::string{}});
    set_marks(std::move(marks));
  };
  add_go_action("mark", "Mark the moment, until the next one", "M", [=] { toggle(false); });
  add_go_action("bookmark", "Bookmark", "Shift+M", [=] { toggle(true); });
  add_go_action("next_mark", "Next mark", "Ctrl+M", [this] { step_mark(1); });
}

void MainWindow::add_compare_actions() {
  const auto compares = [this] { return explorer_.other() != nullptr; };
  actions_.add({"end_comparison",
                "Compare",
                "End the comparison",
                "",
                [this](const QString&) {
                  if (!explorer_.is_open()) return;
                  explain_job_->cancel();
                  explorer_.end_comparison();
                  scatter_.reset();
                  explanation_.reset();
                  other_path_.clear();
                  fill_comparison();
                  view_changed();
                  selection_changed();
                },
                false,
                {},
                compares});
  add_choices(
      "Compare", "compare_mode", "Show as", words(CompareMode{}),
      [this](const QString& w) { explorer_.view().compare_mode = value_of<CompareMode>(w); },
      [this] { return qt(word_of(explorer_.view().compare_mode)); });
  add_choices(
      "Compare", "error_channel", "Error of", words(ErrorChannel{}),
      [this](const QString& w) { explorer_.view().error_channel = value_of<ErrorChannel>(w); },
      [this] { return qt(word_of(explorer_.view().error_channel)); });
  actions_.add({"overlay", "Compare", "Lanes or overlay", "O", [this](const QString&) {
                  CompareMode& m = explorer_.view().compare_mode;
                  m = m == CompareMode::Lanes ? CompareMode::Overlay : CompareMode::Lanes;
                  view_changed();
                }});
  actions_.add({"blink", "Compare", "Blink between the two", "B", [this](const QString&) {
                  View& v = explorer_.view();
                  v.blink_other = v.compare_mode == CompareMode::Blink && !v.blink_other;
                  v.compare_mode = CompareMode::Blink;
                  view_changed();
                }});
  actions_.add({"colour_error", "Compare", "Colour by error", "E",
                [this](const QString&) {
                  ColourBy& c = explorer_.view().colour_by;
                  c = c == ColourBy::Error ? ColourBy::Class : ColourBy::Error;
                  view_changed();
                },
                false, [this] { return explorer_.view().colour_by == ColourBy::Error; }});
  actions_.add({"find_errors", "Compare", "Find ops that are off by more than", "",
                [this](const QString& given) {
                  given.isEmpty() ? ask_text("find_errors", "percent of their duration, such as 20")
                                  : find_errors(given);
                },
                true});
}

void MainWindow::add_alignment_actions() {
  const auto compares = [this] { return explorer_.other() != nullptr; };
  add_choices(
      "Compare", "align", "Align by", words(Alignment{}),
      [this](const QString& w) { set_alignment(value_of<Alignment>(w)); },
      [this] { return qt(word_of(compare_options_.alignment)); });
  actions_.add({"lock_alignment", "Compare", "Lock or unlock the alignment", "L",
                [this](const QString&) {
                  // Unlocked, it stays where it is until it is dragged.
                  const bool unlocks = compare_options_.alignment != Alignment::Manual;
                  const Document* d = explorer_.other() != nullptr ? &explorer_.other()->document : nullptr;
                  if (unlocks && d != nullptr && d->events().size() > 0)
                    compare_options_.manual_ps = d->start(0) - d->events().start(0);
                  set_alignment(unlocks ? Alignment::Manual : Alignment::Step);
                  view_changed();
                },
                false, [this] { return compare_options_.alignment != Alignment::Manual; }});
  const auto shift = [this](double share) {
    shift_second(static_cast<std::int64_t>(share * double(explorer_.view().time.length())));
  };
  actions_.add({"offset", "Compare", "Move the second one by a time", "",
                [this](const QString& given) {
                  if (given.isEmpty()) return ask_text("offset", "a time, such as 1.5 ms or -20 us");
                  compare_options_.manual_ps = picoseconds_of(given);
                  set_alignment(Alignment::Manual);
                  view_changed();
                },
                true});
  actions_.add({"shift_earlier",
                "Compare",
                "Move the second one earlier",
                "Ctrl+Left",
                [=](const QString&) { shift(-0.01); },
                false,
                {},
                compares});
  actions_.add({"shift_later",
                "Compare",
                "Move the second one later",
                "Ctrl+Right",
                [=](const QString&) { shift(0.01); },
                false,
                {},
                compares});
}

void MainWindow::add_what_if_actions() {
  const auto has_simulator = [this] { return resimulator_ != nullptr; };
  const auto has_state = [this] { return !what_if_->state().scenario.empty(); };
  actions_.add({"what_if",
                "What if",
                "Choose a scenario",
                "Ctrl+I",
                [this](const QString& given) {
                  if (resimulator_ == nullptr) throw UserError{"this build has no simulator"};
                  QStringList names;
                  for (const std::string& s : resimulator_->scenarios()) names << qt(s);
                  const auto choose = [this, names](const QString& name) {
                    check_word(name, names);
                    execute("show_panel what_if");
                    what_if_->choose(name);
                  };
                  if (!given.isEmpty()) return choose(given);
                  choose_from("Choose a scenario", names, [=](int i) { choose(names[i]); });
                },
                false,
                {},
                has_simulator});
  actions_.add({"what_if_set",
                "What if",
                "Change an option or a parameter of the hardware",
                "",
                [this](const QString& given) {
                  given.isEmpty() ? ask_text("what_if_set", "PATH=VALUE or PARAMETER=x2") : what_if_->change(given);
                },
                true,
                {},
                has_state});
  actions_.add({"what_if_keep",
                "What if",
                "Compare with this state from now on",
                "",
                [this](const QString&) { what_if_->keep(); },
                false,
                {},
                has_state});
  actions_.add({"what_if_copy",
                "What if",
                "Copy the command line of this state",
                "Ctrl+Shift+C",
                [this](const QString&) { QApplication::clipboard()->setText(what_if_->command()); },
                false,
                {},
                has_state});
}

void MainWindow::add_help_actions() {
  actions_.add({"palette", "Help", "Find a command", "Ctrl+Shift+P", [this](const QString&) { show_palette(); }});
  actions_.add({"keys", "Help", "Keys", "?", [this](const QString&) { show_keys(); }});
  actions_.add({"example",
                "Help",
                "Example comparison",
                "",
                [this](const QString&) { open_example(); },
                false,
                {},
                [this] { return resimulator_ != nullptr; }});
  actions_.add({"tour", "Help", "Guided tour", "F1", [this](const QString&) { tour_->begin(); }});
}

}  // namespace orrery::gui
