// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/timeline/digest.hpp"

namespace orrery {

enum class Glyphs { Unicode, Ascii };

struct RenderOptions {
  int width = 100;            // columns of the terminal, labels included
  std::size_t max_ranks = 8;  // the others are counted below the picture
  Glyphs glyphs = Glyphs::Unicode;
};

/// A picture for a terminal: one line per rank and stream, time from left to right. The letter in a cell is the class
/// that ran longest in it; where the stream was busy for less than half of the cell it is in lower case, where it was
/// idle there is a dot. A line of time marks above and a legend of the letters below.
std::string render_text(const Timeline& timeline, const PlanDigests& plans, const RenderOptions& options = {});

}  // namespace orrery
