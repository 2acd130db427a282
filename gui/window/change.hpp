// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QUndoCommand>
#include <functional>

namespace orrery::gui {

/// A change that has been made, of something small: what it was before and after, and how it is put back.
template <class T>
class Change final : public QUndoCommand {
 public:
  using Set = std::function<void(const T&)>;
  Change(const QString& what, T before, T after, Set set)
      : QUndoCommand{what}, before_{std::move(before)}, after_{std::move(after)}, set_{std::move(set)} {}

  void undo() override { set_(before_); }
  /// Called once more when it is put on the stack: it has been made already.
  void redo() override {
    if (is_undone_) set_(after_);
    is_undone_ = true;
  }

 private:
  T before_, after_;
  Set set_;
  bool is_undone_ = false;
};

}  // namespace orrery::gui
