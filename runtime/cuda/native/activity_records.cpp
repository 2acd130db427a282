// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/native/activity_records.hpp"

#include <cupti.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <utility>

#include "runtime/clock.hpp"
#include "runtime/cuda/native/activity_decoder.hpp"
#include "sim/base/error.hpp"
#include "sim/base/library.hpp"

namespace orrery {
namespace {

constexpr std::size_t kBuffer = 4 << 20, kAlignment = 8;

struct ActivityCalls {
  explicit ActivityCalls(const Library& l) {
    l.find("cuptiActivityRegisterCallbacks", register_callbacks);
    l.find("cuptiActivityEnable", enable);
    l.find("cuptiActivityDisable", disable);
    l.find("cuptiActivityFlushAll", flush);
    l.find("cuptiActivityGetNextRecord", next);
    l.find("cuptiActivityGetNumDroppedRecords", dropped);
    l.find("cuptiActivityPushExternalCorrelationId", push);
    l.find("cuptiActivityPopExternalCorrelationId", pop);
    l.find("cuptiGetTimestamp", timestamp);
    l.find("cuptiGetResultString", text);
  }
  decltype(cuptiActivityRegisterCallbacks)* register_callbacks = nullptr;
  decltype(cuptiActivityEnable)* enable = nullptr;
  decltype(cuptiActivityDisable)* disable = nullptr;
  decltype(cuptiActivityFlushAll)* flush = nullptr;
  decltype(cuptiActivityGetNextRecord)* next = nullptr;
  decltype(cuptiActivityGetNumDroppedRecords)* dropped = nullptr;
  decltype(cuptiActivityPushExternalCorrelationId)* push = nullptr;
  decltype(cuptiActivityPopExternalCorrelationId)* pop = nullptr;
  decltype(cuptiGetTimestamp)* timestamp = nullptr;
  decltype(cuptiGetResultString)* text = nullptr;
};

class Records;
/// The one that records now. CUPTI calls back without an argument, so there is no other way.
Records*& active() {
  static Records* records = nullptr;
  return records;
}

class Records final : public ActivityRecords {
 public:
  Records() : library_{"CUPTI", {"libcupti.so.13", "libcupti.so"}}, calls_{library_} {
    if (active()) bug("activity records are taken twice in one process");
    active() = this;
    check(calls_.register_callbacks(&Records::give_buffer, &Records::take_buffer), "cuptiActivityRegisterCallbacks");
    for (const CUpti_ActivityKind kind : activity_kinds()) check(calls_.enable(kind), "cuptiActivityEnable");
    first_ = clocks();
  }
  ~Records() override {
    for (const CUpti_ActivityKind kind : activity_kinds()) calls_.disable(kind);
    calls_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    active() = nullptr;
  }

  void mark(std::uint64_t id) override {
    std::uint64_t before = 0;
    if (marked_) check(calls_.pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &before), "cuptiActivityPop…");
    marked_ = id != 0;
    if (marked_) check(calls_.push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, id), "cuptiActivityPush…");
  }

  ActivityLog take() override {
    check(calls_.flush(0), "cuptiActivityFlushAll");
    const std::lock_guard lock{mutex_};
    ActivityLog log;
    log.first = first_;
    log.last = first_ = clocks();
    log.activities = decoder_.take();
    log.dropped = std::exchange(dropped_, 0);
    return log;
  }

 private:
  void check(CUptiResult result, const char* call) const {
    if (result == CUPTI_SUCCESS) return;
    if (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ||
        result == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES)
      throw DeviceError{
          "CUPTI may not record here: ask the administrator to set NVreg_RestrictProfilingToAdminUsers=0, "
          "or run without --activities"};
    const char* text = nullptr;
    calls_.text(result, &text);
    throw DeviceError{fmt::format("{}: {}", call, text ? text : "unknown CUPTI error")};
  }
  /// The time of the device between two readings of the host's clock, the nearest of some.
  ClockPair clocks() const {
    ClockPair best;
    std::int64_t least = INT64_MAX;
    for (int i = 0; i < 8; ++i) {
      std::uint64_t device = 0;
      const std::int64_t before = now_ns();
      calls_.timestamp(&device);
      const std::int64_t after = now_ns();
      if (after - before >= least) continue;
      least = after - before;
      best = {static_cast<std::int64_t>(device), before + (after - before) / 2};
    }
    return best;
  }
  static void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBuffer));
    *size = *buffer ? kBuffer : 0;
    *records = 0;
  }
  static void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                                   std::size_t valid) {
    if (active()) active()->read(context, stream, buffer, valid);
    std::free(buffer);
  }
  void read(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t valid) {
    const std::lock_guard lock{mutex_};
    decoder_.read(buffer, valid, calls_.next);
    std::size_t lost = 0;
    if (calls_.dropped(context, stream, &lost) == CUPTI_SUCCESS) dropped_ += lost;
  }
  Library library_;
  ActivityCalls calls_;
  std::mutex mutex_;
  ActivityDecoder decoder_;
  std::uint64_t dropped_ = 0;
  ClockPair first_;
  bool marked_ = false;
};

}  // namespace

std::shared_ptr<ActivityRecords> open_activity_records() { return std::make_shared<Records>(); }

}  // namespace orrery
