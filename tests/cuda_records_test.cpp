// SPDX-License-Identifier: Apache-2.0
// CUPTI's own buffers and counters, without a GPU: records that lie in a buffer as CUPTI lays them out, found by its
// own function, and what its host library says of chips.
#include <cupti.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <vector>

#include "runtime/cuda/native/activity_decoder.hpp"
#include "runtime/cuda/native/counters.hpp"
#include "sim/base/library.hpp"

using namespace orrery;

namespace {

/// A buffer as CUPTI hands it over: records one behind the other, each as long as its newest layout.
class RecordedBuffer {
 public:
  template <class Record>
  void add(const Record& record) {
    std::memcpy(bytes_.data() + used_, &record, sizeof record);
    used_ += sizeof record;
  }
  std::uint8_t* data() { return bytes_.data(); }
  std::size_t size() const { return used_; }

 private:
  alignas(8) std::array<std::uint8_t, 8192> bytes_{};
  std::size_t used_ = 0;
};

template <class Record>
Record record(CUpti_ActivityKind kind, std::uint32_t call) {
  Record r{};
  r.kind = kind;
  r.correlationId = call;
  return r;
}

CUpti_ActivityExternalCorrelation mark(std::uint64_t mark, std::uint32_t call) {
  auto r = record<CUpti_ActivityExternalCorrelation>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, call);
  r.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
  r.externalId = mark;
  return r;
}

template <class Record>
Record interval(CUpti_ActivityKind kind, std::uint32_t call, std::uint64_t start, std::uint64_t end) {
  auto r = record<Record>(kind, call);
  r.start = start;
  r.end = end;
  return r;
}

}  // namespace

TEST_CASE("each kind of record becomes an activity of the op whose mark its call bore", "[cuda]") {
  std::optional<Library> cupti;
  try {
    cupti.emplace("CUPTI", std::initializer_list<std::string>{"libcupti.so.13", "libcupti.so"});
  } catch (const MissingError&) {
    WARN("not tested: libcupti.so.13 is not here");
    return;
  }
  decltype(cuptiActivityGetNextRecord)* next = nullptr;
  cupti->find("cuptiActivityGetNextRecord", next);

  RecordedBuffer first, second;
  first.add(mark(7, 101));
  first.add(interval<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 101, 10, 20));
  auto copy = interval<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY, 102, 30, 40);
  copy.bytes = 1 << 20;
  first.add(copy);
  auto peer = interval<CUpti_ActivityMemcpyPtoP4>(CUPTI_ACTIVITY_KIND_MEMCPY2, 103, 50, 60);
  peer.bytes = 256;
  first.add(peer);
  auto fill = interval<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, 104, 70, 80);
  fill.bytes = 128;
  first.add(fill);
  auto wait = interval<CUpti_ActivitySynchronization2>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, 105, 90, 190);
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  first.add(wait);
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
  wait.correlationId = 106;
  first.add(wait);
  auto memory = record<CUpti_ActivityMemory4>(CUPTI_ACTIVITY_KIND_MEMORY2, 107);
  memory.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  memory.bytes = 4096;
  memory.timestamp = 200;
  first.add(memory);
  memory.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  memory.correlationId = 999;  // of a call that bore no mark
  first.add(memory);
  // The marks of most calls come in a later buffer.
  for (std::uint32_t call = 102; call <= 107; ++call) second.add(mark(call - 94, call));

  ActivityDecoder decoder;
  decoder.read(first.data(), first.size(), next);
  decoder.read(second.data(), second.size(), next);
  const std::vector<Activity> all = decoder.take();
  using Kind = Activity::Kind;
  const std::vector<Activity> want{{7, 10, 20, Kind::Kernel, 0},           {8, 30, 40, Kind::Copy, 1 << 20},
                                   {9, 50, 60, Kind::Copy, 256},           {10, 70, 80, Kind::Fill, 128},
                                   {11, 90, 190, Kind::HostWait, 0},       {12, 90, 190, Kind::StreamWait, 0},
                                   {13, 200, 200, Kind::Allocation, 4096}, {0, 200, 200, Kind::Release, 4096}};
  REQUIRE(all.size() == want.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    INFO("record " << i);
    CHECK(all[i].mark == want[i].mark);
    CHECK(all[i].start_ns == want[i].start_ns);
    CHECK(all[i].end_ns == want[i].end_ns);
    CHECK(all[i].kind == want[i].kind);
    CHECK(all[i].bytes == want[i].bytes);
  }
  CHECK(decoder.take().empty());
}

TEST_CASE("what is counted is known to the chips, and needs few passes", "[cuda]") {
  const std::vector<std::string> names{kBytesRead, kBytesWritten, kTensorShare};
  for (const char* chip : {"GA100", "GH100"}) {
    INFO(chip);
    try {
      const CounterPlan plan = plan_counters(chip, names);
      CHECK(!plan.image.empty());
      CHECK(plan.passes >= 1);
      CHECK(plan.passes <= 4);
    } catch (const MissingError&) {
      WARN("not tested: libcupti.so.13 is not here");
      return;
    }
    CHECK_THROWS_AS(plan_counters(chip, {"no_such__counter.sum"}), DeviceError);
  }
}
