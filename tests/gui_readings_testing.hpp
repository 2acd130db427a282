// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gui/core/readings.hpp"

namespace orrery::gui {

/// Letters are kinds (N norm, G gemm, A elementwise, R rotation, P attention, M gate); F is a kernel that is known to
/// be fused.
inline Sequence sequence(const std::string& letters) {
  Sequence out;
  for (const char c : letters) out.push_back({static_cast<std::uint64_t>(c), c == 'F'});
  return out;
}

}  // namespace orrery::gui
