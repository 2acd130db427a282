// SPDX-License-Identifier: Apache-2.0
// The real window for people who use no mouse, a screen reader, or large texts.
#include <QAbstractButton>
#include <QDialog>
#include <QListWidget>
#include <QPalette>
#include <QTreeView>
#include <catch2/catch.hpp>

#include "gui/core/color.hpp"
#include "gui/window/palette.hpp"
#include "tests/gui_window_testing.hpp"

using namespace orrery;
using namespace orrery::gui;
using namespace orrery::testing;

namespace {

Color color_of(const QPalette& p, QPalette::ColorRole role) { return p.color(QPalette::Active, role).rgb(); }

}  // namespace

TEST_CASE("texts of widgets have the contrast of WCAG AA in both themes", "[gui]") {
  for (const ThemeName name : {ThemeName::Light, ThemeName::Dark}) {
    const QPalette p = palette_of(theme(name));
    for (const auto& [text, background] : {std::pair{QPalette::WindowText, QPalette::Window},
                                           {QPalette::Text, QPalette::Base},
                                           {QPalette::Text, QPalette::AlternateBase},
                                           {QPalette::PlaceholderText, QPalette::Base},
                                           {QPalette::ButtonText, QPalette::Button},
                                           {QPalette::ToolTipText, QPalette::ToolTipBase},
                                           {QPalette::HighlightedText, QPalette::Highlight},
                                           {QPalette::Link, QPalette::Base}}) {
      INFO(name_of(name) << ": " << int(text) << " on " << int(background));
      CHECK(contrast(color_of(p, text), color_of(p, background)) >= 4.5);
    }
  }
}

TEST_CASE("every command is in the palette, which needs no mouse", "[gui]") {
  Fixture f;
  f.compare();
  f.key(Qt::Key_P, Qt::ControlModifier | Qt::ShiftModifier);
  const auto* dialog = f.window.findChild<QDialog*>("chooser");
  REQUIRE(dialog != nullptr);
  const auto* list = dialog->findChild<QListWidget*>();
  REQUIRE(list != nullptr);
  for (const Action& a : f.window.actions().all()) {
    INFO(a.id.toStdString());
    bool is_there = false;
    for (int i = 0; i < list->count(); ++i) is_there = is_there || list->item(i)->text().contains(a.title);
    CHECK((is_there || a.id == "palette"));
  }
}

TEST_CASE("whatever can have the keyboard tells a screen reader what it is", "[gui]") {
  Fixture f;
  f.compare();
  for (const QWidget* w : f.window.findChildren<QWidget*>()) {
    const bool has_role = qobject_cast<const QAbstractButton*>(w) != nullptr ||
                          qobject_cast<const QAbstractItemView*>(w) != nullptr || w->focusPolicy() == Qt::StrongFocus;
    if (!has_role || !w->isVisible() || (w->focusPolicy() & Qt::TabFocus) == 0) continue;
    QAccessibleInterface* i = QAccessible::queryAccessibleInterface(const_cast<QWidget*>(w));
    REQUIRE(i != nullptr);
    INFO(w->metaObject()->className() << " '" << w->objectName().toStdString() << "' in "
                                      << w->parentWidget()->metaObject()->className());
    CHECK_FALSE(i->text(QAccessible::Name).isEmpty());
  }
}

TEST_CASE("at any scale from 100 to 200 % buttons and boxes have room for their texts", "[gui]") {
  Fixture f;
  f.compare();
  f.window.resize(1900, 1000);
  f.window.execute("normal_size");
  for (double last = 0; f.view().scale > last; f.window.execute("larger")) {
    last = f.view().scale;
    QApplication::processEvents();
    for (const QWidget* w : f.window.findChildren<QWidget*>()) {
      const auto* button = qobject_cast<const QAbstractButton*>(w);
      const bool has_text = (button != nullptr && !button->text().isEmpty()) ||
                            qobject_cast<const QComboBox*>(w) != nullptr ||
                            qobject_cast<const QLineEdit*>(w) != nullptr;
      if (!has_text || !w->isVisible()) continue;
      INFO(last << ": " << w->metaObject()->className() << " '" << w->objectName().toStdString() << "' "
                << w->accessibleName().toStdString());
      CHECK(w->height() >= w->fontMetrics().height());
      CHECK(w->height() >= w->minimumSizeHint().height());
    }
    if (last >= 2) break;
  }
  CHECK(f.view().scale == Approx(2));
}
