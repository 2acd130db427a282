// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QTimer>
#include <QWidget>
#include <functional>
#include <optional>

#include "gui/core/what_if.hpp"

class QComboBox;
class QFormLayout;
class QLabel;
class QLineEdit;
class QScrollArea;

namespace orrery::gui {

/// Sliders for the hardware, boxes and lines for the options of a scenario. A change asks for a new simulation after
/// kDebounce milliseconds; the first state is what later ones are compared with, until another one is kept.
class WhatIfPanel : public QWidget {
  Q_OBJECT
 public:
  static constexpr int kDebounce = 50;
  using Run = std::function<void(const WhatIfState&)>;
  /// `execute` runs a command of the window: its buttons do what menus do.
  WhatIfPanel(Resimulator* resimulator, Run run, std::function<void(const QString&)> execute, QWidget* parent);

  void choose(const QString& scenario);
  void set_factor(const QString& name, double factor);
  void set_option(const QString& path, const QString& value);
  /// "link.bandwidth=x2" or "workload.train.microbatch=4". Throws UserError for what the scenario does not have.
  void change(const QString& text);
  /// Another state of the same scenario, all of it at once.
  void restore(const WhatIfState& state);
  /// Compares with the present state from now on.
  void keep();
  const WhatIfState& state() const { return state_; }
  QString command() const;
  bool has_base() const { return base_.has_value(); }
  bool is_base(const WhatIfState& s) const { return base_ && *base_ == s; }
  bool is_waiting() const { return debounce_.isActive(); }
  void landed(const WhatIfState& state, std::int64_t makespan_ps, double milliseconds);
  void failed(const QString& problem);

 private:
  void make_knobs();
  void add_factor(const Knob& knob);
  void add_option(const Knob& knob);
  void show_factor(const QString& name, double factor);
  void show_option(const QString& path, const QString& value);
  void changed();

  Resimulator* resimulator_;
  Run run_;
  QTimer debounce_;
  WhatIfState state_;
  std::vector<Knob> options_;
  std::optional<WhatIfState> base_;
  std::int64_t base_makespan_ = 0;
  QComboBox* scenarios_;
  QLabel* result_;
  QLineEdit* command_;
  QWidget* knobs_ = nullptr;
  QFormLayout* form_ = nullptr;
  QScrollArea* scroll_;
};

}  // namespace orrery::gui
