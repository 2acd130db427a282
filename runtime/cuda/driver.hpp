// SPDX-License-Identifier: Apache-2.0
// What the cuda device asks of CUDA, and nothing more: the real one is cuda_driver.cpp, tests bring one that runs on
// the host.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/kernel.hpp"
#include "runtime/arena.hpp"
#include "runtime/cuda/activities.hpp"
#include "runtime/cuda/counters.hpp"
#include "sim/base/dtype.hpp"
#include "sim/plan/kinds/collective.hpp"

namespace orrery {

class Peers;
struct GpuStreamTag;
struct GpuEventTag;
using GpuStream = GpuStreamTag*;
using GpuEvent = GpuEventTag*;

/// A device as it says itself.
struct GpuInfo {
  std::string name;
  int capability = 0;  // 90: compute capability 9.0
  int processors = 0;
  std::int64_t memory_bytes = 0, free_bytes = 0, l2_bytes = 0;
  std::string driver;  // "13.0"
};

/// What a device does now, as its sensors say; zeros where there are none.
struct GpuState {
  double clock_hz = 0, watts = 0, celsius = 0;
};

/// C[b] = alpha·op(A[b])·op(B[b]) (+ C[b]) (+ bias) of row-major matrices; `batch` from matrix to matrix, `row` from
/// row to row, both in elements. Where A and B are of 8 bits, their numbers stand for `scale` times as much.
struct GpuProduct {
  struct Matrix {
    std::uintptr_t at = 0;
    DType dtype = DType::F32;
    std::int64_t row = 0, batch = 0;
    std::uintptr_t scale = 0;  // of one f32; 0: none
  };
  std::int64_t m = 0, n = 0, k = 0, count = 1;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  bool fast_f32 = false;  // f32 operands may be rounded to tf32
  double alpha = 1;
  Matrix a, b, c;
  std::uintptr_t bias = 0;  // n numbers of the type of C, or 0
  std::uintptr_t workspace = 0;
  std::int64_t workspace_bytes = 0;
};

/// Ranks, in an order that counts, of which some are of other processes; and those of this one, which have a place in
/// that order and a device.
struct GpuGroup {
  struct Seat {
    std::int32_t member = 0;
    int device = 0;
  };
  std::vector<std::uint32_t> ranks;
  std::vector<Seat> here;
};

/// One member's part of a collective that a library does for all members of this process at once.
struct GpuCollective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  ReduceOp reduce = ReduceOp::Sum;
  DType dtype = DType::F32;
  std::int32_t root = 0;
  std::int64_t elements = 0;  // of the message, as Collective counts it
  std::int32_t member = 0;    // in the order of the group
  std::uintptr_t in = 0, out = 0;
  int device = 0;
  GpuStream stream = nullptr;
};

/// What one member of such a group sends to the others and gets from them, where sizes differ. Messages between two
/// members are in the same order with both.
struct GpuExchange {
  struct Message {
    std::int32_t peer = 0;  // in the order of the group; itself as well
    std::uintptr_t place = 0;
    std::int64_t bytes = 0;
  };
  std::int32_t member = 0;
  int device = 0;
  GpuStream stream = nullptr;
  std::vector<Message> sends, receives;
};

/// Kernels that the devices have been tried with (attention_trial.hpp), those of them that did what they should, and of
/// each other one why it is not used.
struct GpuTrials {
  std::uint32_t tried = 0, passed = 0;
  std::vector<std::string> refused = {};
};

/// What was enqueued on some streams, to run again as a whole.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  virtual void launch(GpuStream stream) = 0;
};

/// Each call throws DeviceError, with what CUDA says, when it fails. Calls with a stream return before the work is
/// done, in the order of the stream.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;
  virtual int num_devices() const = 0;
  virtual GpuInfo info(int device) const = 0;
  virtual GpuState state(int device) = 0;

  virtual GpuStream make_stream(int device) = 0;
  virtual void destroy(GpuStream stream) noexcept = 0;
  virtual GpuEvent make_event(int device) = 0;
  virtual void destroy(GpuEvent event) noexcept = 0;
  virtual void record(GpuEvent event, GpuStream stream) = 0;
  virtual void wait(GpuStream stream, GpuEvent event) = 0;
  /// Waits on the host, and reports what has failed on the stream.
  virtual void synchronize(GpuStream stream) = 0;
  /// From one event to another of the same device, both passed.
  virtual std::int64_t nanoseconds(GpuEvent from, GpuEvent to) = 0;

  /// Memory of a device that grows, or of the host that copies can reach while the host goes on.
  virtual std::unique_ptr<DeviceMemory> device_memory(int device) = 0;
  virtual std::unique_ptr<DeviceMemory> pinned_memory() = 0;
  /// Memory of a device whose blocks are asked for and given back one by one.
  virtual std::unique_ptr<DeviceMemory> plain_memory(int device) = 0;

  /// Between any two places.
  virtual void copy(std::uintptr_t to, std::uintptr_t from, std::int64_t bytes, GpuStream stream) = 0;
  virtual void launch(const kernels::cuda::Launch& launch, GpuStream stream) = 0;
  virtual void multiply(const GpuProduct& product, GpuStream stream) = 0;
  /// Calls a function of the host in the order of the stream; it calls nothing of the driver.
  virtual void call(void (*function)(void*), void* argument, GpuStream stream) = 0;
  /// Does a collective of ranks on different devices; false when there is no library that can.
  virtual bool collective(std::span<const GpuCollective> members) = 0;

  /// Readies collectives of groups that other processes have a part in, those in the same order. Throws MissingError
  /// without a library, DeviceError when processes share a device or one of them is lost.
  virtual void connect(std::span<const GpuGroup> groups, const std::shared_ptr<Peers>& peers) = 0;
  /// The part of this process in a collective of such a group.
  virtual void collective(const GpuGroup& group, std::span<const GpuCollective> members) = 0;
  /// The part of this process in an exchange of such a group.
  virtual void exchange(const GpuGroup& group, std::span<const GpuExchange> members) = 0;

  /// As record, for `nanoseconds`: while streams are captured, a part of the graph that nothing waits for.
  virtual void stamp(GpuEvent event, GpuStream stream) = 0;

  /// What is enqueued on `origin` from now on, and on streams that have waited for it, is kept and does not run yet;
  /// `origin` waits for all of them before the end. Calls between two of `slot` belong to that slot; −1: to none.
  virtual void begin_capture(GpuStream origin) = 0;
  virtual void slot(std::int64_t slot) = 0;
  virtual std::unique_ptr<GpuGraph> end_capture(GpuStream origin) = 0;
  /// The calls that follow do not run: they replace those of a slot, one after another, which may differ in their
  /// arguments only. `end_update` says whether they did; else the graph must be captured again.
  virtual void begin_update(GpuGraph& graph, std::int64_t slot) = 0;
  virtual bool end_update() = 0;

  /// Records of what runs; `mark` says whose it is, where they are taken. Throws MissingError when there can be none.
  virtual std::shared_ptr<ActivitySource> activities() = 0;
  /// What follows on this thread belongs to an op; 0: to none.
  virtual void mark(std::uint64_t id) = 0;
  /// Counters of a device, by NVIDIA's names. Throws MissingError when there can be none.
  virtual std::unique_ptr<CounterSource> counters(int device, const std::vector<std::string>& names) = 0;

  GpuTrials quick_attention;
};

/// Owns a stream or an event.
template <class Handle>
class GpuOwned {
 public:
  GpuOwned() = default;
  GpuOwned(GpuDriver& driver, Handle handle) : driver_{&driver}, handle_{handle} {}
  GpuOwned(GpuOwned&& other) noexcept : driver_{other.driver_}, handle_{std::exchange(other.handle_, nullptr)} {}
  GpuOwned& operator=(GpuOwned&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~GpuOwned() {
    if (handle_) driver_->destroy(handle_);
  }
  Handle get() const { return handle_; }

 private:
  GpuDriver* driver_ = nullptr;
  Handle handle_ = nullptr;
};

/// The devices of this computer. Throws MissingError when the build has no CUDA, or the computer no driver or device.
std::shared_ptr<GpuDriver> open_gpu_driver();

class HostSide;

/// Where the ops of a lane go.
struct GpuQueue {
  GpuDriver& driver;
  HostSide& host;
  GpuStream stream = nullptr;
  int device = 0;
  int capability = 0;  // as of GpuInfo
  bool fast_f32 = false;
  bool captures = false;              // what is enqueued runs later: the host must not wait for it
  std::uint32_t quick_attention = 0;  // kernels of attention_hopper.hpp that may be used (attention_trial.hpp)
};

}  // namespace orrery
