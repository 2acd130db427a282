// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cupti.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/cuda/activities.hpp"

namespace orrery {

/// The kinds of record that are asked of CUPTI: kernels, copies (also from device to device), fills, waits of the host
/// and of streams, memory that is taken and given back, and the marks of the calls that caused them.
std::span<const CUpti_ActivityKind> activity_kinds();

/// Makes activities of CUPTI's records. A record says which call caused it, another one whose mark the call bore; the
/// second may come in a later buffer.
class ActivityDecoder {
 public:
  using Next = decltype(cuptiActivityGetNextRecord)*;
  /// All records of a buffer of which `valid` bytes are filled.
  void read(std::uint8_t* buffer, std::size_t valid, Next next);
  /// All since the last time.
  std::vector<Activity> take();

 private:
  void add(const CUpti_Activity& record);

  std::vector<Activity> activities_;  // whose mark is the correlation id of the call until they are taken
  std::unordered_map<std::uint32_t, std::uint64_t> mark_of_;  // of correlation ids
};

}  // namespace orrery
