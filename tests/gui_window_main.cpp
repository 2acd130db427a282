// SPDX-License-Identifier: Apache-2.0
// Runs tests of the window under the platform "offscreen" unless QT_QPA_PLATFORM says otherwise; ctest also runs them
// in Xvfb where that is installed.
#include <QApplication>
#include <QSettings>
#include <QStandardPaths>

#include "tests/session.hpp"

int main(int argc, char** argv) {
  if (qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  qputenv("QT_SCALE_FACTOR", "1");
  qputenv("QT_FONT_DPI", "96");
  QStandardPaths::setTestModeEnabled(true);
  QApplication application{argc, argv};
  QApplication::setOrganizationName("orrery-test");
  QApplication::setApplicationName("gui_window_test");
  QApplication::setStyle("Fusion");
  QSettings{}.clear();
  return orrery::testing::run_session(argc, argv);
}
