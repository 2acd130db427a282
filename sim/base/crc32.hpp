// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace orrery {

/// The cyclic redundancy check of Ethernet and zip (polynomial 0x04C11DB7, reflected): whether a record was written
/// whole. Not against people: see sha256.hpp.
std::uint32_t crc32(std::string_view bytes);

}  // namespace orrery
