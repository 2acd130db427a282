// SPDX-License-Identifier: Apache-2.0
#include "sim/app/npy.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace orrery {

// https://numpy.org/neps/nep-0001-npy-format.html: magic, version, length of the header, a Python literal padded so
// that the data starts at a multiple of 64.
std::string npy_bytes(std::span<const double> values, const std::vector<std::int64_t>& shape, NpyWidth width) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::size_t kAlignment = 64, kFixed = 10;
  std::string sizes;
  for (const std::int64_t n : shape) sizes += fmt::format("{}, ", n);
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   width == NpyWidth::F32 ? "<f4" : "<f8", sizes);
  const std::size_t used = kFixed + header.size() + 1;
  header.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string out{"\x93NUMPY\x01\x00", 8};
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  const std::size_t start = out.size(), element = width == NpyWidth::F32 ? sizeof(float) : sizeof(double);
  out.resize(start + values.size() * element);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float narrow = static_cast<float>(values[i]);
    const void* from = width == NpyWidth::F32 ? static_cast<const void*>(&narrow) : &values[i];
    std::memcpy(out.data() + start + i * element, from, element);
  }
  return out;
}

}  // namespace orrery
