// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "gui/core/what_if.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {

/// Simulates scenarios for the explorer: all that are listed, with the parameters of `--what-if` as factors and the
/// scalars that can be set for workload, strategy and fidelity as options: first those that the scenario says, then
/// those that it leaves as they are. Arguments outlive it.
std::unique_ptr<gui::Resimulator> make_resimulator(const Wiring& wiring, const Environment& environment);

}  // namespace orrery
