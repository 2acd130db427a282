// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace orrery::kernels {

/// Instructions that the kernels were built with and this processor lacks: "AVX-512"; empty where they run. They are
/// built for the processor of the computer that builds them.
std::string_view missing_instructions();

}  // namespace orrery::kernels
