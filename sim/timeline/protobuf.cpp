// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/protobuf.hpp"

namespace orrery {

bool ProtoReader::varint(std::uint64_t& out) {
  out = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    out |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return true;
  }
  damaged_ = true;
  return false;
}

bool ProtoReader::fixed(int size, std::uint64_t& out) {
  out = 0;
  if (rest_.size() < static_cast<std::size_t>(size)) damaged_ = true;
  for (int i = 0; i < size && !damaged_; ++i)
    out |= std::uint64_t{static_cast<unsigned char>(rest_[static_cast<std::size_t>(i)])} << (8 * i);
  if (!damaged_) rest_.remove_prefix(static_cast<std::size_t>(size));
  return !damaged_;
}

bool ProtoReader::next(Field& out) {
  if (rest_.empty() || damaged_) return false;
  out = {};
  std::uint64_t key = 0, size = 0;
  if (!varint(key)) return false;
  out.number = static_cast<std::uint32_t>(key >> 3);
  switch (key & 7) {
    case 0:
      return varint(out.integer);
    case 1:
      return fixed(8, out.integer);
    case 5:
      return fixed(4, out.integer);
    case 2:
      if (!varint(size)) return false;
      if (size > rest_.size()) break;
      out.bytes = rest_.substr(0, size);
      rest_.remove_prefix(size);
      return true;
    default:
      break;
  }
  damaged_ = true;
  return false;
}

}  // namespace orrery
