// SPDX-License-Identifier: Apache-2.0
#include "tests/session.hpp"

int main(int argc, char** argv) { return orrery::testing::run_session(argc, argv); }
