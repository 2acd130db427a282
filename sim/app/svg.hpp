// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace orrery {

/// A text as it stands between the tags of an SVG: what would begin one is written out.
std::string svg_text(std::string_view text);

/// Colours that are told apart, in the order in which they are given out.
inline constexpr const char* kSvgColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e",
                                              "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"};

}  // namespace orrery
