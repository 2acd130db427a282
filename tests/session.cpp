// SPDX-License-Identifier: Apache-2.0
// Catch2 itself, which takes longer to compile than most tests: once for all programs.
#include "tests/session.hpp"

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

int orrery::testing::run_session(int argc, char** argv) { return Catch::Session().run(argc, argv); }
