// SPDX-License-Identifier: Apache-2.0
#include "sim/app/svg.hpp"

namespace orrery {

std::string svg_text(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

}  // namespace orrery
