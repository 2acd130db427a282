// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/timeline/digest.hpp"

namespace orrery {

/// A trace as Perfetto's protocol buffers (.pftrace): one process per rank, one thread per stream, one child track per
/// further lane, a counter per memory tier. A slice is two packets; its categories are class and kind, its correlation
/// id the op, its annotations the rest of the key. Dependencies are flows; what the run was is an instant on a track
/// "orrery". Times are whole nanoseconds.
std::string write_perfetto(const Trace& trace);

/// Reads what `write_perfetto` writes; UserError for anything else.
Trace read_perfetto(std::string_view bytes, const std::string& file);

/// Field numbers of perfetto/trace/*.proto, by message. An enum value of a message is listed with it.
namespace perfetto {
namespace trace {
constexpr std::uint32_t kPacket = 1;
}
namespace packet {
constexpr std::uint32_t kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11, kInternedData = 12, kSequenceFlags = 13,
                        kTrackDescriptor = 60;
constexpr std::uint64_t kStateCleared = 1, kNeedsState = 2;
}  // namespace packet
namespace event {
constexpr std::uint32_t kCategoryIids = 3, kAnnotations = 4, kType = 9, kNameIid = 10, kTrack = 11, kName = 23,
                        kCounterValue = 30, kFlowIds = 47, kTerminatingFlowIds = 48, kCorrelationId = 52;
constexpr std::uint64_t kBegin = 1, kEnd = 2, kInstant = 3, kCounter = 4;
}  // namespace event
namespace track {
constexpr std::uint32_t kUuid = 1, kName = 2, kProcess = 3, kThread = 4, kParent = 5, kCounter = 8, kSiblingMerge = 15;
constexpr std::uint64_t kMergeNone = 2;
}  // namespace track
namespace process {
constexpr std::uint32_t kPid = 1, kName = 6;
}
namespace thread {
constexpr std::uint32_t kPid = 1, kTid = 2, kName = 5;
}
namespace counter {
constexpr std::uint32_t kUnit = 3;
constexpr std::uint64_t kBytes = 3;
}  // namespace counter
namespace interned {
constexpr std::uint32_t kCategories = 1, kEventNames = 2, kAnnotationNames = 3, kStrings = 29;
}
namespace entry {
constexpr std::uint32_t kIid = 1, kText = 2;
}
namespace annotation {
constexpr std::uint32_t kNameIid = 1, kInt = 4, kString = 6, kName = 10, kStringIid = 17;
}
}  // namespace perfetto

}  // namespace orrery
