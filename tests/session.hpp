// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace orrery::testing {

/// Runs the tests of this program that the arguments choose; what `main` returns.
int run_session(int argc, char** argv);

}  // namespace orrery::testing
