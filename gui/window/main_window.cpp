// SPDX-License-Identifier: Apache-2.0
// The window itself: its parts, what is drawn again when something changes, what it says.
#include "gui/window/main_window.hpp"

#include <fmt/format.h>

#include <QApplication>
#include <QComboBox>
#include <QDragEnterEvent>
#include <QFileInfo>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QMimeData>
#include <QPlainTextEdit>
#include <QProgressBar>
#include <QPushButton>
#include <QSettings>
#include <QStatusBar>
#include <QThread>
#include <QToolBar>
#include <QUndoStack>

#include "gui/window/background.hpp"
#include "gui/window/canvas_widget.hpp"
#include "gui/window/loader.hpp"
#include "gui/window/palette.hpp"
#include "gui/window/panel.hpp"
#include "gui/window/texts.hpp"
#include "gui/window/timeline_widget.hpp"
#include "gui/window/tour.hpp"
#include "gui/window/track_tree.hpp"
#include "gui/window/what_if_panel.hpp"
#include "sim/base/error.hpp"

namespace orrery::gui {
namespace {

constexpr int kMaxRecent = 10;

}  // namespace

MainWindow::MainWindow(Resimulator* resimulator, QWidget* parent)
    : QMainWindow{parent}, resimulator_{resimulator}, actions_{*this, [this](const QString& p) { show_problem(p); }} {
  setObjectName("main_window");
  setWindowTitle("Orrery");
  setAcceptDrops(true);
  setDockOptions(AnimatedDocks | AllowNestedDocks | AllowTabbedDocks);
  resize(1600, 950);
  insight_job_ = new Background{this};
  explain_job_ = new Background{this};
  simulate_job_ = new Background{this};
  statistics_job_ = new Background{this};
  undo_ = new QUndoStack{this};
  loader_ = new Loader{this};
  timeline_ = new TimelineWidget{explorer_, this};
  setCentralWidget(timeline_);
  make_panels();
  add_actions();
  actions_.make_menus(*timeline_);
  auto* bar = addToolBar("view");
  bar->setObjectName("toolbar");
  bar->setMovable(false);
  bar->addWidget(make_toolbar());
  status_ = new QLabel;
  match_status_ = new QLabel;
  match_status_->setAccessibleName("state of the comparison");
  status_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);  // the comparison's state goes first
  statusBar()->addWidget(status_, 1);
  make_progress();
  statusBar()->addPermanentWidget(match_status_);
  tour_ = new Tour{[this](const QString& c) { execute(c); }, this};
  connect(timeline_, &TimelineWidget::selection_changed, this, [this] { selection_changed(); });
  connect(timeline_, &TimelineWidget::range_changed, this, [this] { range_changed(); });
  connect(timeline_, &TimelineWidget::view_changed, this, [this] {
    if (memory_view_ != nullptr) memory_view_->update();
  });
  connect(timeline_, &TimelineWidget::shifted, this, [this](qint64 by) { shift_second(by); });
  connect(undo_, &QUndoStack::indexChanged, this, [this] { actions_.refresh(); });
  connect(timeline_, &TimelineWidget::navigation_requested, this, [this](const QString& id) { execute(id); });
  connect(timeline_, &TimelineWidget::menu_requested, this, [this](QPoint at) { show_menu(at); });
  look_changed();
  update_status();
}

MainWindow::~MainWindow() {
  // Jobs and undo use what the members hold.
  undo_->disconnect(this);
  delete loader_;
  delete insight_job_;
  delete explain_job_;
  delete simulate_job_;
  delete statistics_job_;
}

void MainWindow::guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& e) {
    show_problem(e.what());
  }
}

void MainWindow::show_problem(const QString& problem) {
  log("problem: " + problem);
  statusBar()->showMessage(problem.section('\n', 0, 0), 15'000);
}

void MainWindow::make_progress() {
  progress_ = new QWidget;
  auto* row = new QHBoxLayout{progress_};
  row->setContentsMargins(0, 0, 0, 0);
  progress_text_ = new QLabel;
  progress_bar_ = new QProgressBar;
  progress_bar_->setAccessibleName("how much has been opened");
  progress_bar_->setTextVisible(false);
  progress_bar_->setFixedWidth(160);
  auto* stop = new QPushButton{"Stop"};
  stop->setObjectName("stop_opening");
  stop->setAccessibleName("stop opening");
  connect(stop, &QPushButton::clicked, this, [this] { execute("stop"); });
  for (QWidget* w : std::initializer_list<QWidget*>{progress_text_, progress_bar_, stop}) row->addWidget(w);
  progress_->hide();
  statusBar()->addPermanentWidget(progress_);
  connect(loader_, &Loader::changed, this, [this] { show_progress(); });
  connect(loader_, &Loader::failed, this, [this](const QString&, const QString& problem) {
    load_problem_ = problem;
    show_problem(problem);
  });
}

void MainWindow::show_progress() {
  const bool is_busy = loader_->is_busy(), was_busy = !progress_->isHidden();
  if (!is_busy && !was_busy) return;
  progress_->setVisible(is_busy);
  const Loader::State state = loader_->state();
  const QString what = QString{"%1: %2"}.arg(QFileInfo{state.name}.fileName(), state.what);
  progress_text_->setText(what);
  constexpr int kSteps = 1000;
  progress_bar_->setRange(0, state.share < 0 ? 0 : kSteps);  // without an end it says that something is going on
  if (state.share >= 0) progress_bar_->setValue(static_cast<int>(state.share * kSteps));
  timeline_->set_opening(is_busy ? what : QString{});
  if (is_busy != was_busy) actions_.refresh();
}

void MainWindow::log(const QString& text) { log_->appendPlainText(text); }
QString MainWindow::log_text() const { return log_->toPlainText(); }

QString MainWindow::execute(const QString& commands) {
  try {
    actions_.execute(commands);
    return {};
  } catch (const std::exception& e) {
    log(QString{"problem: %1"}.arg(e.what()));
    return e.what();
  }
}

QString MainWindow::run_script(const QString& commands) {
  wait();
  if (!load_problem_.isEmpty()) return std::exchange(load_problem_, {});
  for (const QString& command : commands.split(';', Qt::SkipEmptyParts)) {
    if (const QString problem = execute(command); !problem.isEmpty()) return problem;
    wait();
    if (!load_problem_.isEmpty()) return std::exchange(load_problem_, {});
  }
  return {};
}

void MainWindow::wait() {
  while (loader_->is_busy() || insight_job_->is_busy() || explain_job_->is_busy() || simulate_job_->is_busy() ||
         statistics_job_->is_busy() || what_if_->is_waiting()) {
    QApplication::processEvents();
    QThread::msleep(2);
  }
  QApplication::processEvents();
}

void MainWindow::look_changed() {
  const Theme& look = theme(explorer_.view().theme);
  QFont f = QApplication::font();
  f.setPixelSize(explorer_.view().px(12));
  QApplication::setFont(f);  // before the style sheet, which keeps what it finds
  QPalette palette = palette_of(look);
  setPalette(palette);
  QApplication::setPalette(palette);  // dialogs too
  setStyleSheet(style_sheet_of(look, explorer_.view().scale));
  scale_tables();
  scale_docks();
  if (explorer_.is_open()) explorer_.refresh();
  view_changed();
}

void MainWindow::view_changed() {
  if (explorer_.is_open()) explorer_.refresh();
  timeline_->redraw();
  for (CanvasWidget* w : {waterfall_, scatter_view_, memory_view_})
    if (w != nullptr) w->update();
  timeline_->set_shifts(explorer_.other() != nullptr && compare_options_.alignment == Alignment::Manual);
  tracks_->refresh();
  show_choices();
  actions_.refresh();
  update_status();
}

void MainWindow::selection_changed() {
  fill_details();
  timeline_->setAccessibleDescription(timeline_->describe_selection());
  if (scatter_view_ != nullptr) scatter_view_->update();
  actions_.refresh();
  update_status();
}

void MainWindow::range_changed() {
  fill_statistics();
  update_status();
}

void MainWindow::update_status() {
  if (!explorer_.is_open()) {
    status_->setText("nothing is open");
    match_status_->clear();
    return;
  }
  const Document& d = explorer_.document();
  const Companion* other = explorer_.other();
  status_->setText(explorer_.view().selected ? timeline_->describe_selection()
                                             : qt(fmt::format("{} {} · {} · {} slices", d.source(), d.name(),
                                                              exact_text(d.end() - d.begin()), d.num_slices())));
  if (other == nullptr) return match_status_->clear();
  const Matching& m = other->matching;
  const auto& p = m.pairs;
  match_status_->setText(qt(fmt::format(
      "pairs: {} by id, {} collectives, {} in layers, {} in streams{} · unmatched {} ({}) + {} ({}) · align {}: {} rms",
      p[0], p[1], p[2], p[3], p[3] > 0 ? " (unsure)" : "", m.unmatched_main, to_text(m.unmatched_main_time),
      m.unmatched_other, to_text(m.unmatched_other_time), word_of(compare_options_.alignment),
      to_text(Seconds{other->residual_ns * 1e-9}))));
}

void MainWindow::remember(const QString& path) {
  QStringList all = recent();
  const QString absolute = QFileInfo{path}.absoluteFilePath();
  all.removeAll(absolute);
  all.prepend(absolute);
  QSettings{}.setValue("recent", QStringList{all.mid(0, kMaxRecent)});
}

QStringList MainWindow::recent() const { return QSettings{}.value("recent").toStringList(); }

void MainWindow::dragEnterEvent(QDragEnterEvent* e) {
  if (e->mimeData()->hasUrls()) e->acceptProposedAction();
}

/// One file opens; two are compared; with Shift the first is compared with what is open.
void MainWindow::dropEvent(QDropEvent* e) {
  const QList<QUrl> urls = e->mimeData()->urls();
  for (qsizetype i = 0; i < urls.size(); ++i) {
    const bool compares = i > 0 || (e->modifiers() & Qt::ShiftModifier);
    compares ? compare(urls[i].toLocalFile()) : open(urls[i].toLocalFile());
  }
  e->acceptProposedAction();
}

void MainWindow::closeEvent(QCloseEvent* e) {
  QSettings settings;
  settings.setValue("geometry", saveGeometry());
  settings.setValue("docks", saveState());
  QMainWindow::closeEvent(e);
}

}  // namespace orrery::gui
