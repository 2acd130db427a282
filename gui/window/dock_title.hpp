// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QDockWidget>

namespace orrery::gui {

/// A title for a dock whose text and buttons (into a window of its own and back, away) grow with the application's
/// font: those that Qt draws keep the size they began with. A drag of it moves the dock.
void give_title(QDockWidget& dock);

}  // namespace orrery::gui
