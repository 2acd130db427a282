// SPDX-License-Identifier: Apache-2.0
// The panels around the timeline and what stands in them.
#include <fmt/format.h>

#include <QComboBox>
#include <QDockWidget>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QTableWidget>
#include <QVBoxLayout>
#include <cmath>

#include "gui/window/background.hpp"
#include "gui/window/canvas_widget.hpp"
#include "gui/window/dock_title.hpp"
#include "gui/window/main_window.hpp"
#include "gui/window/panel.hpp"
#include "gui/window/tables.hpp"
#include "gui/window/texts.hpp"
#include "gui/window/timeline_widget.hpp"
#include "gui/window/track_tree.hpp"
#include "gui/window/what_if_panel.hpp"
#include "sim/timeline/compare.hpp"

namespace orrery::gui {
namespace {

constexpr std::size_t kMaxFoundRows = 2000, kMaxOwners = 200;

/// Widgets one above the other without margins.
QWidget* column(std::initializer_list<QWidget*> widgets) {
  auto* all = new QWidget;
  auto* box = new QVBoxLayout{all};
  box->setContentsMargins(4, 4, 4, 4);
  box->setSpacing(4);
  for (QWidget* w : widgets)
    box->addWidget(w, qobject_cast<QLabel*>(w) != nullptr || qobject_cast<QLineEdit*>(w) != nullptr ||
                              qobject_cast<QComboBox*>(w) != nullptr
                          ? 0
                          : 1);
  return all;
}

TableCell time_cell(std::int64_t ps) { return number_cell(qt(to_text(Seconds{double(ps) * 1e-12})), double(ps)); }
TableCell signed_cell(double seconds) { return number_cell(qt(signed_text(seconds)), seconds); }

/// Less than a picosecond is rounding.
TableCell spread_cell(double seconds) {
  return number_cell(qt(to_text(Seconds{seconds < 1e-12 ? 0 : seconds})), seconds);
}

}  // namespace

Panel* MainWindow::add_panel(const QString& id, const QString& title, QWidget* content, Qt::DockWidgetArea area,
                             const QString& empty) {
  auto* dock = new QDockWidget{title, this};
  dock->setObjectName("dock_" + id);
  give_title(*dock);
  auto* panel = new Panel{content, empty, dock};
  dock->setWidget(panel);
  addDockWidget(area, dock);
  return panels_[id] = panel;
}

void MainWindow::make_panels() {
  setCorner(Qt::BottomRightCorner, Qt::RightDockWidgetArea);
  details_ = make_table("details", {"", "value"}, this, 1);
  add_panel("details", "Details", details_, Qt::RightDockWidgetArea,
            "Click an op in the timeline, or press . to go from one to the next.");
  tracks_ = new TrackTree{explorer_, this};
  add_panel("tracks", "Lanes", tracks_, Qt::RightDockWidgetArea, "Open a timeline to see its ranks and lanes.");
  connect(tracks_, &TrackTree::rows_changed, this, [this] { view_changed(); });
  connect(tracks_, &TrackTree::row_chosen, this, [this](quint64 key) { go_to_row(key); });
  make_compare_panels();
  what_if_ = new WhatIfPanel{resimulator_, [this](const WhatIfState& s) { run_what_if(s); },
                             [this](const QString& id) { execute(id); }, this};
  add_panel("what_if", "What if", what_if_, Qt::RightDockWidgetArea, "This build has no simulator.")
      ->setCurrentIndex(resimulator_ != nullptr ? 1 : 0);
  statistics_ = make_table("statistics", {"op", "class", "count", "total", "mean", "longest"}, this);
  statistics_->setSortingEnabled(true);
  statistics_->sortByColumn(3, Qt::DescendingOrder);
  statistics_head_ = new QLabel;
  add_panel("statistics", "Statistics", column({statistics_head_, statistics_}), Qt::BottomDockWidgetArea,
            "Open a timeline to see what its time goes to. Drag on the ruler to look at a part.");
  search_ = new QLineEdit;
  search_->setPlaceholderText("words of op names, sizes or kinds");
  search_->setAccessibleName("search for ops");
  found_ = make_table("found", {"op", "lane", "start", "duration"}, this);
  found_->setSortingEnabled(true);
  found_->sortByColumn(2, Qt::AscendingOrder);
  add_panel("search", "Search", column({search_, found_}), Qt::BottomDockWidgetArea,
            "Press / and type words of an op's name, size or kind.")
      ->show_content();
  path_table_ = make_table("critical_path_table", {"on the critical path", "time", "share", "ops"}, this);
  add_panel("critical_path", "Critical path", path_table_, Qt::BottomDockWidgetArea,
            "The chain of ops that makes the run as long as it is. Traces of other programs do not say what waited for "
            "what.");
  make_memory_panel();
  log_ = new QPlainTextEdit;
  log_->setReadOnly(true);
  log_->setAccessibleName("log");
  add_panel("log", "Log", log_, Qt::BottomDockWidgetArea, "")->show_content();
  const auto dock = [this](const char* id) { return qobject_cast<QDockWidget*>(panels_[id]->parentWidget()); };
  tabifyDockWidget(dock("details"), dock("tracks"));
  dock("details")->raise();
  tabifyDockWidget(dock("comparison"), dock("scatter"));
  tabifyDockWidget(dock("comparison"), dock("what_if"));
  dock("comparison")->raise();
  for (const char* id : {"search", "critical_path", "memory", "log"}) tabifyDockWidget(dock("statistics"), dock(id));
  dock("statistics")->raise();
  connect(search_, &QLineEdit::returnPressed, this, [this] {
    search(search_->text());
    timeline_->setFocus();
  });
  connect(found_, &QTableWidget::itemActivated, this, [this](QTableWidgetItem* i) {
    select(Selected{Side::Main, static_cast<EventIndex>(row_number(*found_, i->row()))});
  });
  connect(statistics_, &QTableWidget::itemActivated, this, [this](QTableWidgetItem* i) {
    select(Selected{Side::Main, static_cast<EventIndex>(row_number(*statistics_, i->row()))});
  });
  connect(path_table_, &QTableWidget::itemActivated, this, [this](QTableWidgetItem* i) {
    select(Selected{Side::Main, static_cast<EventIndex>(row_number(*path_table_, i->row()))});
  });
}

void MainWindow::make_compare_panels() {
  compare_head_ = new QLabel;
  compare_head_->setWordWrap(true);
  waterfall_ =
      new CanvasWidget{"waterfall of the difference",
                       [this](Canvas& c) {
                         if (explanation_) return draw_waterfall(c, *explanation_, explorer_.view());
                         const Theme& look = theme(explorer_.view().theme);
                         c.fill(c.size(), look.background);
                         draw_text_centred(c, c.size(), "finding where the difference comes from …", look.muted, {12});
                       },
                       timeline_->font(), this};
  shares_ = make_table("shares", {"class", "adds", "±", "durations", "pairs"}, this);
  shares_->setSortingEnabled(true);
  shares_->sortByColumn(1, Qt::DescendingOrder);
  add_panel("comparison", "Comparison", column({compare_head_, waterfall_, shares_}), Qt::RightDockWidgetArea,
            "Open a second timeline with Ctrl+Shift+O, or drop it here with Shift: a measurement beside its "
            "prediction, or two predictions.");
  scatter_view_ =
      new CanvasWidget{"durations of matched ops",
                       [this](Canvas& c) {
                         if (scatter_ != nullptr)
                           scatter_->draw(c, explorer_.view(), explorer_.colouring(), explorer_.document(), brush_);
                       },
                       timeline_->font(), this};
  add_panel("scatter", "Scatter", scatter_view_, Qt::RightDockWidgetArea,
            "With two timelines: the durations of each op in both, against each other.");
  connect(scatter_view_, &CanvasWidget::clicked, this, [this](int x, int y) {
    if (scatter_ == nullptr) return;
    brush_.reset();
    if (const auto e = scatter_->nearest(x, y, scatter_view_->picture(), explorer_.view()))
      select(Selected{Side::Main, *e});
  });
  connect(scatter_view_, &CanvasWidget::dragged, this, [this](int x0, int y0, int x1, int y1) {
    if (scatter_ == nullptr) return;
    brush_ = Rect{x0, y0, x1 - x0, y1 - y0};
    explorer_.view().found = scatter_->in(*brush_, scatter_view_->picture(), explorer_.view(), explorer_.document());
    found_at_ = -1;
    fill_search();
    view_changed();
  });
}

void MainWindow::make_memory_panel() {
  memory_box_ = new QComboBox;
  memory_box_->setAccessibleName("which memory");
  memory_view_ = new CanvasWidget{"memory over time", [this](Canvas& c) { draw_memory(c, memory_, explorer_.view()); },
                                  timeline_->font(), this};
  owners_ = make_table("owners", {"at the peak", "kind", "size"}, this);
  owners_->setSortingEnabled(true);
  owners_->sortByColumn(2, Qt::DescendingOrder);
  auto* both = new QWidget;
  auto* row = new QHBoxLayout{both};
  row->setContentsMargins(0, 0, 0, 0);
  row->addWidget(memory_view_, 3);
  row->addWidget(owners_, 1);
  add_panel("memory", "Memory", column({memory_box_, both}), Qt::BottomDockWidgetArea,
            "This timeline has no memory in it.");
  connect(memory_box_, &QComboBox::currentIndexChanged, this, [this] { show_memory(); });
}

QWidget* MainWindow::make_toolbar() {
  auto* bar = new QWidget;
  auto* row = new QHBoxLayout{bar};
  row->setContentsMargins(0, 0, 0, 0);
  const auto add = [&](const char* label, QComboBox*& box, auto names, const char* command) {
    box = new QComboBox;
    box->setAccessibleName(label);
    box->setObjectName(command);
    box->setFocusPolicy(Qt::TabFocus);
    box->setSizeAdjustPolicy(QComboBox::AdjustToContents);
    for (const auto& n : names) box->addItem(qt(n.name), qt(n.name));
    row->addWidget(new QLabel{label});
    row->addWidget(box);
    connect(box, &QComboBox::activated, this, [this, box, command] {
      const QString value = box->currentData().toString();
      execute(QString{"%1 %2"}.arg(command, value.isEmpty() ? "none" : value));
      timeline_->setFocus();
    });
  };
  add("Colour", colour_box_, enum_names(ColourBy{}), "colour_by");
  add("Group", group_box_, std::span<const EnumName<ColourBy>>{}, "group_by");
  add("Compare as", mode_box_, enum_names(CompareMode{}), "compare_mode");
  add("Align", align_box_, enum_names(Alignment{}), "align");
  row->addStretch();
  return bar;
}

/// The boxes say what holds, however it was chosen.
void MainWindow::show_choices() {
  const View& v = explorer_.view();
  const auto show = [](QComboBox* box, std::string_view word) { box->setCurrentIndex(box->findData(qt(word))); };
  show(colour_box_, word_of(v.colour_by));
  show(group_box_, v.group_by);
  show(mode_box_, word_of(v.compare_mode));
  show(align_box_, word_of(compare_options_.alignment));
}

void MainWindow::fill_details() {
  Panel& panel = *panels_["details"];
  if (!explorer_.is_open() || !explorer_.view().selected) return panel.show_empty();
  std::vector<std::vector<TableCell>> rows;
  for (const Detail& d : details_of(explorer_, *explorer_.view().selected))
    rows.push_back({{qt(d.name)}, {qt(d.value)}});
  fill_table(*details_, rows);
  panel.show_content();
}

void MainWindow::fill_statistics() {
  Panel& panel = *panels_["statistics"];
  if (!explorer_.is_open()) return panel.show_empty();
  const TimeRange range =
      explorer_.view().range.value_or(TimeRange{explorer_.document().begin(), explorer_.document().end()});
  const RangeStatistics s = statistics(explorer_.document(), range);
  statistics_head_->setText(
      qt(fmt::format("{}: {} · {} slices · lanes busy {:.1f} %", explorer_.view().range ? "range" : "all of it",
                     exact_text(range.length()), s.count(), 100 * s.utilisation())));
  panel.show_content();
  // Looks at each slice: beside the window's thread.
  statistics_job_->start([this, &document = explorer_.document(), range](const auto&) -> std::function<void()> {
    return [this, all = statistics_by_name(document, range)] { fill_statistics_by_name(all); };
  });
}

void MainWindow::fill_statistics_by_name(const std::vector<NameStatistics>& all) {
  std::vector<std::vector<TableCell>> rows;
  std::vector<quint64> numbers;
  for (const NameStatistics& n : all) {
    rows.push_back({{qt(n.name)},
                    {qt(orrery::name_of(n.op_class))},
                    number_cell(QString::number(n.count), double(n.count)),
                    time_cell(n.total),
                    time_cell(n.total / static_cast<std::int64_t>(n.count)),
                    time_cell(n.longest)});
    numbers.push_back(n.example);
  }
  fill_table(*statistics_, rows, numbers);
}

void MainWindow::fill_search() {
  const auto& found = explorer_.view().found;
  std::vector<std::vector<TableCell>> rows;
  std::vector<quint64> numbers;
  for (std::size_t i = 0; explorer_.is_open() && i < std::min(found.size(), kMaxFoundRows); ++i) {
    const Document& d = explorer_.document();
    const Track& t = d.tracks()[d.place(found[i]).track];
    rows.push_back({{qt(d.events().name(found[i]))},
                    {qt(d.owners()[t.owner].name + " " + t.name)},
                    number_cell(qt(exact_text(d.start(found[i]))), double(d.start(found[i]))),
                    time_cell(d.end(found[i]) - d.start(found[i]))});
    numbers.push_back(found[i]);
  }
  fill_table(*found_, rows, numbers);
  qobject_cast<QDockWidget*>(panels_["search"]->parentWidget())
      ->setWindowTitle(found.empty() ? "Search" : QString{"Search: %1"}.arg(found.size()));
}

void MainWindow::fill_critical_path() {
  Panel& panel = *panels_["critical_path"];
  if (!explorer_.is_open() || explorer_.insight() == nullptr) return panel.show_empty();
  struct Sum {
    std::int64_t time = 0, longest = 0;
    std::size_t ops = 0;
    EventIndex example = kNoEvent;
  };
  std::map<std::string, Sum> sums;
  for (const PathSegment& s : explorer_.insight()->path.segments) {
    Sum& sum = sums[s.is_gap || s.span == kNoSpan ? "(waiting for the host)"
                                                  : name_pattern(explorer_.document().events().name(s.span))];
    sum.time += s.end_ps - s.start_ps;
    ++sum.ops;
    if (s.end_ps - s.start_ps >= sum.longest && s.span != kNoSpan) sum.example = s.span;
    sum.longest = std::max(sum.longest, s.end_ps - s.start_ps);
  }
  std::vector<std::vector<TableCell>> rows;
  std::vector<quint64> numbers;
  const double whole = std::max<double>(1, double(explorer_.document().end()));
  for (const auto& [name, sum] : sums) {
    rows.push_back({{qt(name)},
                    time_cell(sum.time),
                    number_cell(qt(fmt::format("{:.1f} %", 100 * double(sum.time) / whole)), double(sum.time)),
                    number_cell(QString::number(sum.ops), double(sum.ops))});
    numbers.push_back(sum.example);
  }
  path_table_->setSortingEnabled(true);
  fill_table(*path_table_, rows, numbers);
  path_table_->sortByColumn(1, Qt::DescendingOrder);
  panel.show_content();
}

void MainWindow::fill_comparison() {
  if (explorer_.other() == nullptr) {
    panels_["comparison"]->show_empty();
    panels_["scatter"]->show_empty();
    return;
  }
  const Document &a = explorer_.document(), &b = explorer_.other()->document;
  const Matching& m = explorer_.other()->matching;
  compare_head_->setText(
      qt(fmt::format("<b>{} {}</b> against <b>{} {}</b>: {} pairs, {} + {} unmatched, {} fused", a.source(), a.name(),
                     b.source(), b.name(), m.num_pairs(), m.unmatched_main, m.unmatched_other, m.fusions.size())));
  std::vector<std::vector<TableCell>> rows;
  if (explanation_)
    for (const Share& s : explanation_->shares)
      rows.push_back({{qt(s.name)},
                      signed_cell(s.mean()),
                      spread_cell(std::abs(s.forward - s.reverse) / 2),
                      number_cell(s.pairs > 0 ? qt(fmt::format("{:+.2f} %", 100 * s.bias)) : "", s.bias),
                      number_cell(s.pairs > 0 ? QString::number(s.pairs) : "", double(s.pairs))});
  fill_table(*shares_, rows);
  if (explanation_) {
    QStringList words;
    for (const Share& s : explanation_->shares) words << qt(s.name + " " + signed_text(s.mean()));
    waterfall_->setAccessibleDescription(words.join(", "));
  }
  scatter_view_->setAccessibleDescription(QString{"%1 pairs"}.arg(m.num_pairs()));
  waterfall_->setVisible(explanation_ || b.trace() != nullptr);
  waterfall_->update();
  panels_["comparison"]->show_content();
  scatter_ != nullptr && scatter_->size() > 0 ? panels_["scatter"]->show_content() : panels_["scatter"]->show_empty();
}

/// Larger texts need more room.
void MainWindow::scale_docks() {
  const double scale = explorer_.view().scale;
  if (dock_scale_ == scale) return;
  dock_scale_ = scale;
  const auto dock = [this](const char* id) { return qobject_cast<QDockWidget*>(panels_[id]->parentWidget()); };
  const auto px = [scale](int at_scale_1, int most) { return std::min(static_cast<int>(at_scale_1 * scale), most); };
  owners_->setMinimumWidth(px(220, width() / 4));
  resizeDocks({dock("details"), dock("comparison")}, {px(320, height() / 3), px(420, height() / 2)}, Qt::Vertical);
  resizeDocks({dock("details")}, {px(400, width() * 2 / 5)}, Qt::Horizontal);
  resizeDocks({dock("statistics")}, {px(230, height() * 2 / 5)}, Qt::Vertical);
}

void MainWindow::scale_tables() {
  for (QTableWidget* table : {details_, statistics_, found_, path_table_, shares_, owners_})
    scale_table(*table, explorer_.view().scale);
}

void MainWindow::fill_memories() {
  const QSignalBlocker blocked{memory_box_};
  memory_box_->clear();
  for (const auto& [rank, tier] : memories_of(explorer_.document()))
    memory_box_->addItem(qt(fmt::format("rank {}, {} memory", rank, orrery::name_of(tier))),
                         QPoint{static_cast<int>(rank), static_cast<int>(tier)});
  show_memory();
}

void MainWindow::show_memory() {
  if (memory_box_->count() == 0) return panels_["memory"]->show_empty();
  const QPoint which = memory_box_->currentData().toPoint();
  memory_ = memory_profile(explorer_.document(), static_cast<std::uint32_t>(which.x()), static_cast<Tier>(which.y()));
  std::vector<std::vector<TableCell>> rows;
  for (std::size_t i = 0; i < std::min(memory_.owners.size(), kMaxOwners); ++i) {
    const MemoryProfile::Owner& o = memory_.owners[i];
    rows.push_back({{qt(o.name)}, {qt(orrery::name_of(o.role))}, number_cell(qt(to_text(Bytes{o.bytes})), o.bytes)});
  }
  fill_table(*owners_, rows);
  panels_["memory"]->show_content();
  memory_view_->setAccessibleDescription(qt(fmt::format("{}, peak {}", memory_.title, to_text(Bytes{memory_.peak}))));
  memory_view_->update();
}

}  // namespace orrery::gui
