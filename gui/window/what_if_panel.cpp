// SPDX-License-Identifier: Apache-2.0
#include "gui/window/what_if_panel.hpp"

#include <fmt/format.h>

#include <QComboBox>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QScrollArea>
#include <QSlider>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "gui/core/draw.hpp"
#include "gui/window/texts.hpp"
#include "sim/base/error.hpp"

namespace orrery::gui {
namespace {

/// Sliders go from a quarter to four times, in steps of a twentieth of a doubling.
constexpr int kSliderSteps = 40, kPerDoubling = 20;

double factor_at(int slider) { return std::exp2(double(slider) / kPerDoubling); }

}  // namespace

WhatIfPanel::WhatIfPanel(Resimulator* resimulator, Run run, std::function<void(const QString&)> execute,
                         QWidget* parent)
    : QWidget{parent},
      resimulator_{resimulator},
      run_{std::move(run)},
      scenarios_{new QComboBox},
      result_{new QLabel},
      command_{new QLineEdit},
      scroll_{new QScrollArea} {
  setObjectName("what_if");
  debounce_.setSingleShot(true);
  debounce_.setInterval(kDebounce);
  connect(&debounce_, &QTimer::timeout, this, [this] { run_(state_); });
  scenarios_->setAccessibleName("scenario");
  scroll_->setAccessibleName("sliders and options");
  scenarios_->addItem("choose a scenario");
  if (resimulator_ != nullptr)
    for (const std::string& s : resimulator_->scenarios()) scenarios_->addItem(qt(s));
  connect(scenarios_, &QComboBox::activated, this, [this](int i) {
    if (i > 0) choose(scenarios_->itemText(i));
  });
  result_->setWordWrap(true);
  result_->setText("Choose a scenario: it is simulated, and sliders and options appear for it.");
  command_->setReadOnly(true);
  command_->setAccessibleName("command line of this state");
  auto* row = new QHBoxLayout;
  row->addWidget(command_);
  const auto button = [&](const char* text, const char* name, const char* command) {
    auto* b = new QPushButton{text};
    b->setAccessibleName(name);
    b->setToolTip(name);
    connect(b, &QPushButton::clicked, this, [execute, command] { execute(command); });
    row->addWidget(b);
  };
  button("Copy", "copy the command line of this state", "what_if_copy");
  button("Keep", "compare with this state from now on", "what_if_keep");
  scroll_->setWidgetResizable(true);
  scroll_->setFrameShape(QFrame::NoFrame);
  auto* all = new QVBoxLayout{this};
  all->setContentsMargins(6, 6, 6, 6);
  all->addWidget(scenarios_);
  all->addWidget(result_);
  all->addWidget(scroll_, 1);
  all->addLayout(row);
}

void WhatIfPanel::choose(const QString& scenario) {
  state_ = {scenario.toStdString(), {}, {}};
  base_.reset();
  const QSignalBlocker blocked{scenarios_};
  scenarios_->setCurrentText(scenario);
  try {
    make_knobs();
  } catch (const std::exception& e) {
    return failed(e.what());
  }
  changed();
}

void WhatIfPanel::make_knobs() {
  knobs_ = new QWidget;
  form_ = new QFormLayout{knobs_};
  form_->setFieldGrowthPolicy(QFormLayout::AllNonFixedFieldsGrow);
  form_->setRowWrapPolicy(QFormLayout::WrapLongRows);
  options_ = resimulator_->knobs(state_.scenario);
  for (const Knob& k : options_) k.kind == Knob::Kind::Factor ? add_factor(k) : add_option(k);
  scroll_->setWidget(knobs_);  // deletes the last one
}

void WhatIfPanel::add_factor(const Knob& knob) {
  auto* slider = new QSlider{Qt::Horizontal};
  auto* value = new QLabel{"×1"};
  value->setObjectName("value " + qt(knob.name));
  value->setMinimumWidth(48);
  slider->setRange(-kSliderSteps, kSliderSteps);
  slider->setValue(0);
  slider->setObjectName("factor " + qt(knob.name));
  slider->setAccessibleName(qt(knob.name));
  slider->setAccessibleDescription(qt(knob.summary));
  slider->setToolTip(qt(knob.summary));
  auto* row = new QWidget;
  auto* box = new QHBoxLayout{row};
  box->setContentsMargins(0, 0, 0, 0);
  box->addWidget(slider);
  box->addWidget(value);
  form_->addRow(qt(knob.name), row);
  connect(slider, &QSlider::valueChanged, this,
          [this, name = qt(knob.name)](int at) { set_factor(name, factor_at(at)); });
}

void WhatIfPanel::add_option(const Knob& knob) {
  const auto set = [this, name = qt(knob.name)](const QString& text) { set_option(name, text); };
  QWidget* widget = nullptr;
  if (knob.choices.empty()) {
    auto* line = new QLineEdit{qt(knob.value)};
    connect(line, &QLineEdit::editingFinished, this, [line, set] {
      if (line->isModified()) set(line->text());
      line->setModified(false);
    });
    widget = line;
  } else {
    auto* box = new QComboBox;
    for (const std::string& c : knob.choices) box->addItem(qt(c));
    box->setCurrentText(qt(knob.value));
    connect(box, &QComboBox::activated, this, [box, set] { set(box->currentText()); });
    widget = box;
  }
  widget->setObjectName("option " + qt(knob.name));
  widget->setAccessibleName(qt(knob.name));
  widget->setToolTip(qt(knob.summary));
  form_->addRow(qt(knob.name), widget);
}

void WhatIfPanel::show_factor(const QString& name, double factor) {
  if (auto* slider = findChild<QSlider*>("factor " + name)) {
    const QSignalBlocker blocked{slider};
    slider->setValue(static_cast<int>(std::lround(std::log2(factor) * kPerDoubling)));
  }
  if (auto* value = findChild<QLabel*>("value " + name)) value->setText(qt(fmt::format("×{:.3g}", factor)));
}

void WhatIfPanel::set_factor(const QString& name, double factor) {
  show_factor(name, factor);
  factor == 1 ? void(state_.factors.erase(name.toStdString())) : void(state_.factors[name.toStdString()] = factor);
  changed();
}

void WhatIfPanel::show_option(const QString& path, const QString& value) {
  if (auto* line = findChild<QLineEdit*>("option " + path)) line->setText(value);
  if (auto* box = findChild<QComboBox*>("option " + path)) box->setCurrentText(value);
}

void WhatIfPanel::restore(const WhatIfState& state) {
  for (const Knob& k : options_) {
    if (k.kind == Knob::Kind::Factor) {
      const auto f = state.factors.find(k.name);
      show_factor(qt(k.name), f != state.factors.end() ? f->second : 1);
    } else {
      const auto s = state.settings.find(k.name);
      show_option(qt(k.name), qt(s != state.settings.end() ? s->second : k.value));
    }
  }
  state_ = state;
  changed();
}

void WhatIfPanel::set_option(const QString& path, const QString& value) {
  const std::string text = value.trimmed().toStdString();
  const auto knob = std::find_if(options_.begin(), options_.end(), [&](const Knob& k) { return qt(k.name) == path; });
  const bool is_original = text.empty() || (knob != options_.end() && knob->value == text);
  is_original ? void(state_.settings.erase(path.toStdString())) : void(state_.settings[path.toStdString()] = text);
  if (!text.empty()) show_option(path, qt(text));
  changed();
}

void WhatIfPanel::change(const QString& text) {
  const QString name = text.section('=', 0, 0).trimmed(), value = text.section('=', 1).trimmed();
  QStringList names;
  for (const Knob& k : options_) names << qt(k.name);
  check_word(name, names);
  if (options_[static_cast<std::size_t>(names.indexOf(name))].kind != Knob::Kind::Factor)
    return set_option(name, value);
  bool is_number = false;
  const double factor = value.mid(value.startsWith('x') ? 1 : 0).toDouble(&is_number);
  if (!is_number || factor <= 0)
    throw UserError{fmt::format("'{}' is no factor for {}", value.toStdString(), name.toStdString()),
                    "write it as x2 or x0.5"};
  set_factor(name, factor);
}

void WhatIfPanel::keep() {
  if (state_.scenario.empty()) return;
  base_ = state_;
  base_makespan_ = 0;  // comes with the result
  changed();
}

void WhatIfPanel::changed() {
  command_->setText(command());
  command_->setCursorPosition(0);
  debounce_.start();
}

QString WhatIfPanel::command() const { return qt(command_line(state_)); }

void WhatIfPanel::landed(const WhatIfState& state, std::int64_t makespan, double milliseconds) {
  if (!base_) base_ = state;
  if (is_base(state)) base_makespan_ = makespan;
  const double ratio = base_makespan_ > 0 ? double(makespan) / double(base_makespan_) - 1 : 0;
  result_->setText(qt(
      fmt::format("{}{} · simulated in {:.0f} ms", exact_text(makespan),
                  is_base(state) ? "" : fmt::format(" ({:+.2f} % against {})", 100 * ratio, exact_text(base_makespan_)),
                  milliseconds)));
}

void WhatIfPanel::failed(const QString& problem) { result_->setText(problem); }

}  // namespace orrery::gui
