// SPDX-License-Identifier: Apache-2.0
#include "sim/base/crc32.hpp"

#include <zlib.h>

namespace orrery {

std::uint32_t crc32(std::string_view bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace orrery
