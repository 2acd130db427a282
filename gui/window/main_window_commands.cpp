// SPDX-License-Identifier: Apache-2.0
// What the actions do.
#include <fmt/format.h>

#include <QDialog>
#include <QFileDialog>
#include <QInputDialog>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QMenu>
#include <QStatusBar>
#include <QUndoStack>
#include <QVBoxLayout>
#include <cmath>

#include "gui/window/change.hpp"
#include "gui/window/main_window.hpp"
#include "gui/window/panel.hpp"
#include "gui/window/texts.hpp"
#include "gui/window/timeline_widget.hpp"
#include "gui/window/what_if_panel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/yaml.hpp"

namespace orrery::gui {
namespace {

/// A list with a line above it: typing filters, up and down move, Enter chooses.
class Chooser final : public QDialog {
 public:
  Chooser(const QString& title, const QStringList& lines, QWidget* parent)
      : QDialog{parent}, line_{new QLineEdit}, list_{new QListWidget} {
    setObjectName("chooser");
    setWindowTitle(title);
    line_->setPlaceholderText(title);
    line_->setAccessibleName(title);
    list_->setAccessibleName("choices");
    auto* all = new QVBoxLayout{this};
    all->addWidget(line_);
    all->addWidget(list_);
    for (int i = 0; i < lines.size(); ++i) {
      auto* item = new QListWidgetItem{lines[i], list_};
      item->setData(Qt::UserRole, i);
    }
    list_->setCurrentRow(0);
    resize(560, 420);
    connect(line_, &QLineEdit::textChanged, this, [this](const QString& text) { filter(text); });
    connect(line_, &QLineEdit::returnPressed, this, &QDialog::accept);
    connect(list_, &QListWidget::itemActivated, this, &QDialog::accept);
    line_->installEventFilter(this);
    line_->setFocus();
  }
  int chosen() const {
    const QListWidgetItem* item = list_->currentItem();
    return item == nullptr || item->isHidden() ? -1 : item->data(Qt::UserRole).toInt();
  }

 protected:
  bool eventFilter(QObject*, QEvent* e) override {
    if (e->type() != QEvent::KeyPress) return false;
    const int key = static_cast<QKeyEvent*>(e)->key();
    if (key != Qt::Key_Up && key != Qt::Key_Down) return false;
    int row = list_->currentRow();
    do row += key == Qt::Key_Down ? 1 : -1;
    while (row >= 0 && row < list_->count() && list_->item(row)->isHidden());
    if (row >= 0 && row < list_->count()) list_->setCurrentRow(row);
    return true;
  }

 private:
  /// Every word typed has to occur.
  void filter(const QString& text) {
    const QStringList words = text.split(' ', Qt::SkipEmptyParts);
    int first = -1;
    for (int i = 0; i < list_->count(); ++i) {
      const bool fits = std::all_of(words.begin(), words.end(), [&](const QString& w) {
        return list_->item(i)->text().contains(w, Qt::CaseInsensitive);
      });
      list_->item(i)->setHidden(!fits);
      if (fits && first < 0) first = i;
    }
    list_->setCurrentRow(first);
  }

  QLineEdit* line_;
  QListWidget* list_;
};

}  // namespace

void MainWindow::zoom(double factor) {
  View& v = explorer_.view();
  const std::int64_t around = v.selected && v.selected->side == Side::Main
                                  ? explorer_.document().start(v.selected->event)
                                  : v.time.begin + v.time.length() / 2;
  const bool is_seen = around >= v.time.begin && around <= v.time.end;
  v.time = zoomed(v.time, is_seen ? around : v.time.begin + v.time.length() / 2, factor, explorer_.whole());
}

void MainWindow::pan(double share) { explorer_.view().time = panned(explorer_.view().time, share, explorer_.whole()); }

void MainWindow::select(std::optional<Selected> s) {
  if (!s) return;
  explorer_.select(*s, timeline_->picture());
  view_changed();
  selection_changed();
}

void MainWindow::search(const QString& text) {
  if (!explorer_.is_open()) return;
  search_->setText(text);
  explorer_.view().found = gui::search(explorer_.document(), text.toStdString());
  found_at_ = -1;
  fill_search();
  view_changed();
  step_found(1);
}

void MainWindow::step_found(int by) {
  const auto& found = explorer_.view().found;
  if (found.empty()) return;
  found_at_ = found_at_ < 0 ? 0 : (found_at_ + by + static_cast<int>(found.size())) % static_cast<int>(found.size());
  select(Selected{Side::Main, found[static_cast<std::size_t>(found_at_)]});
}

void MainWindow::step_worst(int by) {
  if (worst_.empty()) return;
  worst_at_ = worst_at_ < 0 ? 0 : std::clamp(worst_at_ + by, 0, static_cast<int>(worst_.size()) - 1);
  select(Selected{Side::Main, worst_[static_cast<std::size_t>(worst_at_)]});
}

void MainWindow::step_mark(int by) {
  View& v = explorer_.view();
  if (v.marks.empty()) return;
  std::vector<Mark> marks = v.marks;
  std::sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) { return a.at < b.at; });
  const std::int64_t middle = v.time.begin + v.time.length() / 2;
  auto it =
      std::upper_bound(marks.begin(), marks.end(), middle, [](std::int64_t t, const Mark& m) { return t < m.at; });
  if (it == marks.end() || by < 0) it = marks.begin();
  v.time = {it->at - v.time.length() / 2, it->at - v.time.length() / 2 + v.time.length()};
  view_changed();
}

void MainWindow::set_marks(std::vector<Mark> marks) {
  const auto set = [this](const std::vector<Mark>& m) {
    if (!explorer_.is_open()) return;
    explorer_.view().marks = m;
    view_changed();
  };
  undo_->push(new Change<std::vector<Mark>>{"marks", explorer_.view().marks, marks, set});
  set(marks);
}

void MainWindow::select_times(const QString& from_to) {
  if (!explorer_.is_open()) throw UserError{"nothing is open"};
  const QStringList ends = from_to.split(" to ");
  if (ends.size() != 2)
    throw UserError{fmt::format("'{}' is no range", from_to.toStdString()), "write it as 1.5 ms to 2 ms"};
  const TimeRange range{picoseconds_of(ends[0]), picoseconds_of(ends[1])};
  if (range.length() <= 0) throw UserError{"the range would end before it begins"};
  explorer_.view().range = range;
  range_changed();
  view_changed();
}

void MainWindow::find_errors(const QString& percent) {
  const Companion* other = explorer_.other();
  if (other == nullptr) throw UserError{"there is no second timeline to be off from"};
  bool is_number = false;
  const double least = percent.section('%', 0, 0).toDouble(&is_number) / 100;
  if (!is_number || least < 0)
    throw UserError{fmt::format("'{}' is no share", percent.toStdString()), "write it as 20 for 20 %"};
  const Document& d = explorer_.document();
  std::vector<EventIndex> found;
  for (EventIndex e = 0; e < other->errors.size(); ++e)
    if (std::abs(std::expm1(other->errors[e])) >= least) found.push_back(e);
  std::stable_sort(found.begin(), found.end(), [&](EventIndex a, EventIndex b) { return d.start(a) < d.start(b); });
  explorer_.view().found = std::move(found);
  found_at_ = -1;
  fill_search();
  view_changed();
  step_found(1);
}

void MainWindow::go_to_row(RowKey key) {
  const auto kind = static_cast<RowKind>(key >> 32);
  const auto index = static_cast<std::uint32_t>(key);
  const Document& d = explorer_.document();
  if (kind == RowKind::Lane || kind == RowKind::Counter) {
    const std::uint32_t owner = kind == RowKind::Lane ? d.tracks()[index].owner : d.counters()[index].owner;
    explorer_.view().folded.erase(Row{.kind = RowKind::Owner, .index = owner}.key());
  }
  explorer_.refresh();
  explorer_.scroll_to_row(key, timeline_->picture());
  view_changed();
}

void MainWindow::shift_second(std::int64_t by) {
  compare_options_.manual_ps += by;
  set_alignment(Alignment::Manual);
  view_changed();
}

void MainWindow::set_alignment(Alignment a) {
  compare_options_.alignment = a;
  if (explorer_.other() != nullptr) explorer_.realign(compare_options_);
}

void MainWindow::screenshot(const QString& path) {
  wait();
  const Rect r = timeline_->picture();
  const std::string bytes = path.endsWith(".svg") ? render_svg(explorer_, r.w, r.h, timeline_->font())
                                                  : write_png(render_image(explorer_, r.w, r.h, timeline_->font()));
  write_file_atomically(path.toStdString(), bytes);
}

void MainWindow::save_workspace(const QString& path) {
  write_file_atomically(path.toStdString(), write_workspace({path_.toStdString(), other_path_.toStdString(),
                                                             explorer_.view(), compare_options_}));
}

QString MainWindow::ask_file(const QString& title, bool saves, const QString& filter) {
  const auto options = QFileDialog::DontUseNativeDialog;
  return saves ? QFileDialog::getSaveFileName(this, title, {}, filter, nullptr, options)
               : QFileDialog::getOpenFileName(this, title, {}, filter + ";;All files (*)", nullptr, options);
}

void MainWindow::ask_text(const QString& command, const QString& what) {
  auto* dialog = new QInputDialog{this};
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->setWindowTitle(actions_.find(command)->title);
  dialog->setLabelText(what);
  connect(dialog, &QInputDialog::textValueSelected, this, [this, command](const QString& text) {
    if (const QString problem = execute(command + " " + text); !problem.isEmpty())
      statusBar()->showMessage(problem.section('\n', 0, 0), 15'000);
  });
  dialog->open();
}

void MainWindow::choose_from(const QString& title, const QStringList& lines, const std::function<void(int)>& chosen) {
  auto* dialog = new Chooser{title, lines, this};
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  connect(dialog, &QDialog::accepted, this, [this, dialog, chosen] {
    if (const int i = dialog->chosen(); i >= 0) guarded([&] { chosen(i); });
  });
  dialog->open();
}

void MainWindow::show_palette() {
  QStringList lines;
  for (const Action& a : actions_.all())
    lines << QString{"%1: %2%3   (%4)"}.arg(a.menu, a.title, a.shortcut.isEmpty() ? "" : "   " + a.shortcut, a.id);
  choose_from("Find a command", lines, [this](int i) { actions_.all()[static_cast<std::size_t>(i)].run({}); });
}

void MainWindow::find_track() {
  QStringList lines;
  std::vector<std::uint32_t> tracks;
  const Document& d = explorer_.document();
  for (std::uint32_t t = 0; t < d.tracks().size(); ++t) {
    if (d.tracks()[t].slices.size() == 0) continue;
    lines << qt(d.owners()[d.tracks()[t].owner].name + " · " + d.tracks()[t].name);
    tracks.push_back(t);
  }
  choose_from("Find a lane", lines, [this, tracks](int i) {
    const Track& track = explorer_.document().tracks()[tracks[static_cast<std::size_t>(i)]];
    explorer_.view().folded.erase(Row{.kind = RowKind::Owner, .index = track.owner}.key());
    explorer_.refresh();
    const std::size_t at = std::min(track.slices.first_after(explorer_.view().time.begin), track.slices.size() - 1);
    explorer_.scroll_to(track.slices.event[at], timeline_->picture());
    view_changed();
  });
}

/// What is asked for at a slice.
void MainWindow::show_menu(QPoint at) {
  auto* menu = new QMenu{this};
  menu->setObjectName("timeline_menu");
  menu->setAttribute(Qt::WA_DeleteOnClose);
  for (const char* id : {"focus", "select_range", "pin", "mark", "follow_back", "follow", "clear", "fit"})
    menu->addAction(actions_.qt_action(id));
  menu->popup(at);
}

void MainWindow::show_keys() {
  QString text = "<table>";
  for (const Action& a : actions_.all())
    if (!a.shortcut.isEmpty())
      text += QString{"<tr><td><b>%1</b>&nbsp;&nbsp;&nbsp;</td><td>%2</td></tr>"}.arg(a.shortcut.toHtmlEscaped(),
                                                                                      a.title.toHtmlEscaped());
  text +=
      "</table><p>W, A, S and D are the keys at their places of a US keyboard, whatever is printed on them. Wheel: "
      "rows; with "
      "Shift: time; with Ctrl: zoom. Drag: move; with Shift, or on the ruler: select a range.</p>";
  auto* dialog = new QDialog{this};
  dialog->setObjectName("keys_dialog");
  dialog->setWindowTitle("Keys");
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  auto* label = new QLabel{text};
  label->setWordWrap(true);
  (new QVBoxLayout{dialog})->addWidget(label);
  dialog->open();
}

}  // namespace orrery::gui
