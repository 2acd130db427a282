// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace orrery {

/// The SHA-256 digest (FIPS 180-4) of a text as 64 hexadecimal digits: the identity of resolved scenarios and files.
std::string sha256(std::string_view text);

}  // namespace orrery
