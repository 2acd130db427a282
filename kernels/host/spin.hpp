// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace orrery::kernels {

/// Keeps the calling thread busy for `seconds` of wall-clock time.
void spin(double seconds);

}  // namespace orrery::kernels
