// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "gui/core/insight.hpp"
#include "gui/core/view.hpp"

namespace orrery::gui {

/// What categories mean and how they look.
struct Colouring {
  struct Entry {
    std::string name;
    Color color = 0;
  };
  std::array<Color, 256> colors{};
  std::vector<Entry> legend;
};

/// Errors of events against a partner: ln(measured / predicted), NaN where there is none.
using EventErrors = std::vector<float>;

/// Errors as they are drawn: ±kErrorRange is the end of the scale.
struct ShownErrors {
  const EventErrors& values;
  double range_ps = 0;  // what kErrorRange stands for; 0: itself, a share
};

/// Gives the slices of a document their categories. Error needs `errors` and slack needs `insight`: without them all
/// events look alike.
Colouring colour(Document& document, const View& view, const Insight* insight, const ShownErrors* errors);

}  // namespace orrery::gui
