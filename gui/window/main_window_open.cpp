// SPDX-License-Identifier: Apache-2.0
// What is open, and what follows when it changes. Files are read, prepared and matched beside the window's thread.
#include <QComboBox>
#include <QElapsedTimer>
#include <QStatusBar>
#include <QUndoStack>
#include <chrono>

#include "gui/core/open_file.hpp"
#include "gui/window/background.hpp"
#include "gui/window/change.hpp"
#include "gui/window/loader.hpp"
#include "gui/window/main_window.hpp"
#include "gui/window/panel.hpp"
#include "gui/window/texts.hpp"
#include "gui/window/timeline_widget.hpp"
#include "gui/window/what_if_panel.hpp"
#include "sim/base/yaml.hpp"

namespace orrery::gui {
namespace {

constexpr const char* kExampleScenario = "llama3_70b_64";

/// What a job hands over: jobs are copied, documents are only moved.
template <class T>
using Handed = std::shared_ptr<T>;

template <class T>
Handed<T> handed(T value) {
  return std::make_shared<T>(std::move(value));
}

std::unique_ptr<Companion> compared(const Document& main, Document other, const CompareOptions& options,
                                    const OpenProgress& progress) {
  progress("matching the two timelines", -1);
  return compare_documents(main, std::move(other), options);
}

}  // namespace

void MainWindow::open(const QString& path) {
  loader_->add(path, [this, path]() -> Loader::Work {
    return [this, path](const OpenProgress& progress) -> Loader::Finish {
      QElapsedTimer clock;
      clock.start();
      const auto document = handed(open_document(path.toStdString(), progress));
      return [this, path, document, clock] {
        undo_->clear();
        show_document(std::move(*document), path);
        log(QString{"opened %1: %2 slices in %3 ms"}
                .arg(path)
                .arg(explorer_.document().num_slices())
                .arg(clock.elapsed()));
        remember(path);
      };
    };
  });
}

void MainWindow::compare(const QString& path) {
  loader_->add(path, [this, path]() -> Loader::Work {
    if (!explorer_.is_open()) {
      open(path);
      return {};
    }
    // Nothing takes its place while this runs: show_document waits for it.
    return [this, path, &main = explorer_.document(),
            options = compare_options_](const OpenProgress& progress) -> Loader::Finish {
      Document other = open_document(path.toStdString(), progress);
      const auto both = handed(compared(main, std::move(other), options, progress));
      return [this, path, both, options] {
        show_comparison(std::move(*both), options, path);
        remember(path);
      };
    };
  });
}

void MainWindow::show_document(Document document, const QString& path) {
  for (Background* job : {insight_job_, explain_job_, simulate_job_, statistics_job_})
    job->cancel();  // they read what is replaced
  loader_->abandon();
  path_ = path;
  other_path_.clear();
  worst_.clear();
  scatter_.reset();
  explanation_.reset();
  found_at_ = worst_at_ = -1;
  explorer_.open(std::move(document));
  panels_["tracks"]->show_content();
  if (const ForeignTrace* f = explorer_.document().foreign(); f != nullptr && !f->repairs.empty())
    log(QString{"repairs in %1:\n%2"}.arg(path, qt(repairs_text(*f))));
  setWindowTitle(QString{"%1 – Orrery"}.arg(qt(explorer_.document().name())));
  group_box_->clear();
  group_box_->addItem("no groups", QString{});
  for (const std::string& g : groupings_of(explorer_.document())) group_box_->addItem(qt("by " + g), qt(g));
  fill_comparison();
  fill_memories();
  fill_search();
  view_changed();
  selection_changed();
  range_changed();
  find_insight();
}

void MainWindow::find_insight() {
  fill_critical_path();
  if (explorer_.document().trace() == nullptr) return;
  const Trace& trace = *explorer_.document().trace();
  insight_job_->start([this, &trace](const Background::IsOutdated&) -> std::function<void()> {
    const auto found = handed(std::make_unique<const Insight>(trace));
    return [this, &trace, found] {
      if (!explorer_.is_open() || explorer_.document().trace() != &trace) return;
      explorer_.set_insight(std::move(*found));
      fill_critical_path();
      explain_error();
      selection_changed();
      view_changed();
    };
  });
}

void MainWindow::show_comparison(std::unique_ptr<Companion> second, const CompareOptions& options,
                                 const QString& path) {
  explain_job_->cancel();
  other_path_ = path;
  const bool had_other = explorer_.other() != nullptr;
  explorer_.compare(std::move(second));
  if (options != compare_options_) explorer_.realign(compare_options_);
  if (!had_other) explorer_.fit();
  explanation_.reset();
  worst_.clear();
  worst_at_ = -1;
  brush_.reset();
  const Document& other = explorer_.other()->document;
  scatter_ = std::make_unique<Scatter>(explorer_.document(), *explorer_.other());
  log(QString{"compared with %1: %2 pairs"}.arg(qt(other.name())).arg(explorer_.other()->matching.num_pairs()));
  if (const ForeignTrace* f = other.foreign(); f != nullptr && !f->repairs.empty())
    log(QString{"repairs in %1:\n%2"}.arg(path, qt(repairs_text(*f))));
  fill_comparison();
  explain_error();
  view_changed();
  selection_changed();
}

/// Where the difference comes from needs the graphs of both: in the background.
void MainWindow::explain_error() {
  if (explorer_.other() == nullptr || explorer_.insight() == nullptr) return;
  const Companion* other = explorer_.other();
  worst_ = worst_events(explorer_.document(), *explorer_.insight(), *other);
  if (other->document.trace() == nullptr) return fill_comparison();
  explain_job_->start([this, other, insight = explorer_.insight(),
                       &main = explorer_.document()](const Background::IsOutdated&) -> std::function<void()> {
    const Insight other_insight{*other->document.trace()};
    const Explanation e = explain(main, *insight, other->document, other_insight, other->matching.partner_of_main);
    return [this, other, e] {
      if (explorer_.other() != other) return;
      explanation_ = e;
      fill_comparison();
    };
  });
}

void MainWindow::open_example() {
  if (resimulator_ == nullptr) return log("this build has no simulator for the example");
  statusBar()->showMessage("simulating the example …");
  simulate_job_->start([this, options = compare_options_](const Background::IsOutdated&) -> std::function<void()> {
    try {
      const auto main = handed(Document{resimulator_->simulate({kExampleScenario, {}, {}}, [] {}), kExampleScenario});
      Document other{
          resimulator_->simulate({kExampleScenario, {}, {{"gemm.rate", 0.93}, {"link.bandwidth", 0.75}}}, [] {}),
          "products 7 % and links 25 % slower"};
      const auto both = handed(compare_documents(*main, std::move(other), options));
      return [this, main, both, options] {
        undo_->clear();
        show_document(std::move(*main), {});
        show_comparison(std::move(*both), options, {});
        statusBar()->clearMessage();
      };
    } catch (const std::exception& e) {
      return [this, text = QString{e.what()}] { log("the example cannot be simulated: " + text); };
    }
  });
}

/// Another state of the same scenario can be undone.
void MainWindow::remember_what_if(const WhatIfState& state) {
  const WhatIfState before = std::exchange(what_if_state_, state);
  if (before == state || before.scenario != state.scenario) return;
  undo_->push(new Change<WhatIfState>{"what if", before, state, [this](const WhatIfState& s) {
                                        what_if_state_ = s;
                                        what_if_->restore(s);
                                      }});
}

/// The first state becomes the timeline, later ones are laid beside it.
void MainWindow::run_what_if(const WhatIfState& state) {
  remember_what_if(state);
  explorer_.view().is_stale = explorer_.is_open();
  timeline_->redraw();
  const bool becomes_base = !explorer_.is_open() || !what_if_->has_base() || what_if_->is_base(state);
  const Document* main = becomes_base ? nullptr : &explorer_.document();
  simulate_job_->start([this, state, main, options = compare_options_](
                           const Background::IsOutdated& is_outdated) -> std::function<void()> {
    const auto began = std::chrono::steady_clock::now();
    const auto check = [&] {
      if (is_outdated()) throw std::runtime_error{"replaced by a newer one"};
    };
    try {
      Trace trace = resimulator_->simulate(state, check);
      const std::int64_t makespan = trace.timeline.makespan_ps;
      const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
      const auto document = handed(Document{std::move(trace), state.scenario + (main == nullptr ? "" : " changed")});
      check();
      const auto both = main != nullptr ? handed(compare_documents(*main, std::move(*document), options)) : nullptr;
      return [this, state, document, both, options, makespan, ms] {
        both == nullptr ? show_document(std::move(*document), {}) : show_comparison(std::move(*both), options, {});
        what_if_landed(state, makespan, ms);
      };
    } catch (const std::exception& e) {
      return [this, text = QString{e.what()}] {
        explorer_.view().is_stale = false;
        what_if_->failed(text);
        view_changed();
      };
    }
  });
}

void MainWindow::what_if_landed(const WhatIfState& state, std::int64_t makespan_ps, double milliseconds) {
  explorer_.view().is_stale = false;
  what_if_->landed(state, makespan_ps, milliseconds);
  view_changed();
}

void MainWindow::open_workspace(const QString& path) {
  const Workspace w = read_workspace(read_file(path.toStdString()), path.toStdString());
  loader_->add(path, [this, w]() -> Loader::Work {
    return [this, w](const OpenProgress& progress) -> Loader::Finish {
      const auto main = handed(open_document(w.file, progress));
      const auto both =
          w.other.empty() ? nullptr : handed(compared(*main, open_document(w.other, progress), w.compare, progress));
      return [this, w, main, both] {
        compare_options_ = w.compare;
        undo_->clear();
        show_document(std::move(*main), QString::fromStdString(w.file));
        if (both != nullptr) show_comparison(std::move(*both), w.compare, QString::fromStdString(w.other));
        show_view(w.view);
      };
    };
  });
}

void MainWindow::show_view(const View& view) {
  explorer_.view() = view;
  if (view.selected && view.selected->event >= explorer_.document().events().size()) explorer_.view().selected.reset();
  look_changed();
  selection_changed();
  range_changed();
}

}  // namespace orrery::gui
