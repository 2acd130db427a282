// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/native/activity_decoder.hpp"

#include <utility>

namespace orrery {
namespace {

template <class Record>
Activity interval(Activity::Kind kind, const Record& r, std::int64_t bytes = 0) {
  return {r.correlationId, static_cast<std::int64_t>(r.start), static_cast<std::int64_t>(r.end), kind, bytes};
}

template <class Record>
const Record& as(const CUpti_Activity& record) {
  return reinterpret_cast<const Record&>(record);
}

/// A stream that waits for an event holds nobody up on the host; its times are those of the call.
Activity::Kind kind_of(CUpti_ActivitySynchronizationType type) {
  return type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT ? Activity::Kind::StreamWait
                                                                       : Activity::Kind::HostWait;
}

Activity memory_call(const CUpti_ActivityMemory4& r) {
  const bool takes = r.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  const auto at = static_cast<std::int64_t>(r.timestamp);
  return {r.correlationId, at, at, takes ? Activity::Kind::Allocation : Activity::Kind::Release,
          static_cast<std::int64_t>(r.bytes)};
}

}  // namespace

std::span<const CUpti_ActivityKind> activity_kinds() {
  static constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                                  CUPTI_ACTIVITY_KIND_MEMCPY,
                                                  CUPTI_ACTIVITY_KIND_MEMCPY2,
                                                  CUPTI_ACTIVITY_KIND_MEMSET,
                                                  CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                                                  CUPTI_ACTIVITY_KIND_MEMORY2,
                                                  CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
  return kKinds;
}

void ActivityDecoder::read(std::uint8_t* buffer, std::size_t valid, Next next) {
  CUpti_Activity* record = nullptr;
  while (next(buffer, valid, &record) == CUPTI_SUCCESS) add(*record);
}

// The newest layout of each kind that the headers know is the one that the library of the same version writes.
void ActivityDecoder::add(const CUpti_Activity& record) {
  using Kind = Activity::Kind;
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return activities_.push_back(interval(Kind::Kernel, as<CUpti_ActivityKernel10>(record)));
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& r = as<CUpti_ActivityMemcpy6>(record);
      return activities_.push_back(interval(Kind::Copy, r, static_cast<std::int64_t>(r.bytes)));
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto& r = as<CUpti_ActivityMemcpyPtoP4>(record);
      return activities_.push_back(interval(Kind::Copy, r, static_cast<std::int64_t>(r.bytes)));
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& r = as<CUpti_ActivityMemset4>(record);
      return activities_.push_back(interval(Kind::Fill, r, static_cast<std::int64_t>(r.bytes)));
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      const auto& r = as<CUpti_ActivitySynchronization2>(record);
      return activities_.push_back(interval(kind_of(r.type), r));
    }
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return activities_.push_back(memory_call(as<CUpti_ActivityMemory4>(record)));
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& r = as<CUpti_ActivityExternalCorrelation>(record);
      mark_of_[r.correlationId] = r.externalId;
      return;
    }
    default:
      return;
  }
}

std::vector<Activity> ActivityDecoder::take() {
  for (Activity& a : activities_) {
    const auto mark = mark_of_.find(static_cast<std::uint32_t>(a.mark));
    a.mark = mark == mark_of_.end() ? 0 : mark->second;
  }
  mark_of_.clear();
  return std::exchange(activities_, {});
}

}  // namespace orrery
