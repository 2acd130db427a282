// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QMainWindow>
#include <memory>

#include "gui/core/alignment.hpp"
#include "gui/core/charts.hpp"
#include "gui/core/explorer.hpp"
#include "gui/core/what_if.hpp"
#include "gui/core/workspace.hpp"
#include "gui/window/actions.hpp"

class QComboBox;
class QLabel;
class QLineEdit;
class QPlainTextEdit;
class QProgressBar;
class QTableWidget;
class QUndoStack;

namespace orrery::gui {

class Background;
class CanvasWidget;
class Loader;
class Panel;
class TimelineWidget;
class Tour;
class TrackTree;
class WhatIfPanel;

/// The window: a timeline with panels around it. Everything that can be done is an action.
class MainWindow : public QMainWindow {
  Q_OBJECT
 public:
  /// Without a resimulator there is no what-if and no example. It outlives the window.
  explicit MainWindow(Resimulator* resimulator, QWidget* parent = nullptr);
  ~MainWindow() override;

  Explorer& explorer() { return explorer_; }
  Actions& actions() { return actions_; }
  TimelineWidget& timeline() { return *timeline_; }

  /// Opens beside the window's thread, one file after the other. Problems are shown in the window, not thrown.
  void open(const QString& path);
  /// The same for a second timeline; the first where nothing is open.
  void compare(const QString& path);
  void open_example();
  /// Runs commands as `--exec` does; a problem goes to the log and is returned.
  QString execute(const QString& commands);
  /// The same, each command when what those before it started in the background has ended; a file that cannot be opened
  /// ends it too.
  QString run_script(const QString& commands);
  /// Waits until nothing is computed in the background.
  void wait();
  void log(const QString& text);
  QString log_text() const;

 protected:
  void dragEnterEvent(QDragEnterEvent*) override;
  void dropEvent(QDropEvent*) override;
  void closeEvent(QCloseEvent*) override;

 private:
  // main_window_open.cpp
  void show_document(Document document, const QString& path);
  void show_comparison(std::unique_ptr<Companion> other, const CompareOptions& options, const QString& path);
  void find_insight();
  void explain_error();
  void run_what_if(const WhatIfState& state);
  void remember_what_if(const WhatIfState& state);
  void what_if_landed(const WhatIfState& state, std::int64_t makespan_ps, double milliseconds);
  void open_workspace(const QString& path);
  void show_view(const View& view);

  // main_window.cpp
  void look_changed();  // theme or scale
  void view_changed();  // anything else that is drawn
  void selection_changed();
  void range_changed();
  void update_status();
  void guarded(const std::function<void()>& work);
  void show_problem(const QString& problem);
  void make_progress();
  void show_progress();
  QWidget* make_toolbar();
  void remember(const QString& path);
  QStringList recent() const;

  // actions
  void add_actions();
  void add_file_actions();
  void add_edit_actions();
  void add_view_actions();
  void add_look_actions();
  void add_size_actions();
  void add_go_action(const char* id, const char* title, const char* keys, std::function<void()> work);
  void add_go_actions();
  void add_mark_actions();
  void add_compare_actions();
  void add_alignment_actions();
  void add_what_if_actions();
  void add_help_actions();
  void add_choices(const QString& menu, const QString& id, const QString& title, const QStringList& words,
                   const std::function<void(const QString&)>& choose, const std::function<QString()>& current);
  void zoom(double factor);
  void pan(double share);
  void select(std::optional<Selected> s);
  void step_found(int by);
  void step_worst(int by);
  void step_mark(int by);
  void set_marks(std::vector<Mark> marks);
  void select_times(const QString& from_to);
  void find_errors(const QString& percent);
  void go_to_row(RowKey key);
  void set_alignment(Alignment a);
  void shift_second(std::int64_t by);
  void screenshot(const QString& path);
  void save_workspace(const QString& path);
  QString ask_file(const QString& title, bool saves, const QString& filter);
  /// Asks for the argument of a command, then runs it.
  void ask_text(const QString& command, const QString& what);
  void choose_from(const QString& title, const QStringList& lines, const std::function<void(int)>& chosen);
  void show_palette();
  void find_track();
  void show_keys();
  void show_menu(QPoint at);

  // panels
  void make_panels();
  Panel* add_panel(const QString& id, const QString& title, QWidget* content, Qt::DockWidgetArea area,
                   const QString& empty);
  void make_compare_panels();
  void make_memory_panel();
  void show_choices();
  void fill_details();
  void fill_statistics();
  void fill_statistics_by_name(const std::vector<NameStatistics>& all);
  void fill_search();
  void fill_critical_path();
  void fill_comparison();
  void scale_tables();
  void scale_docks();
  void fill_memories();
  void show_memory();
  void search(const QString& text);

  Resimulator* resimulator_;
  Explorer explorer_;
  Actions actions_;
  TimelineWidget* timeline_ = nullptr;
  QString path_, other_path_, load_problem_;
  CompareOptions compare_options_;
  std::optional<Explanation> explanation_;
  std::unique_ptr<Scatter> scatter_;
  std::optional<Rect> brush_;
  std::vector<EventIndex> worst_;
  int worst_at_ = -1, found_at_ = -1;
  double dock_scale_ = 0;  // that the docks have their sizes for
  MemoryProfile memory_;

  std::map<QString, Panel*> panels_;
  QTableWidget *details_ = nullptr, *statistics_ = nullptr, *found_ = nullptr, *path_table_ = nullptr,
               *shares_ = nullptr, *owners_ = nullptr;
  CanvasWidget *waterfall_ = nullptr, *scatter_view_ = nullptr, *memory_view_ = nullptr;
  QLabel *statistics_head_ = nullptr, *compare_head_ = nullptr, *status_ = nullptr, *match_status_ = nullptr;
  QWidget* progress_ = nullptr;
  QLabel* progress_text_ = nullptr;
  QProgressBar* progress_bar_ = nullptr;
  QLineEdit* search_ = nullptr;
  QComboBox *colour_box_ = nullptr, *group_box_ = nullptr, *mode_box_ = nullptr, *align_box_ = nullptr,
            *memory_box_ = nullptr;
  QPlainTextEdit* log_ = nullptr;
  WhatIfPanel* what_if_ = nullptr;
  WhatIfState what_if_state_;  // the last that was asked for
  TrackTree* tracks_ = nullptr;
  QUndoStack* undo_ = nullptr;
  Tour* tour_ = nullptr;
  // Last: their jobs use what stands above, so they must end first.
  Loader* loader_ = nullptr;
  Background *insight_job_ = nullptr, *explain_job_ = nullptr, *simulate_job_ = nullptr, *statistics_job_ = nullptr;
};

}  // namespace orrery::gui
