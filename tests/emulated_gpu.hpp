// SPDX-License-Identifier: Apache-2.0
// A computer with GPUs that are not there: streams, events and memory of the host, kernels run by cuda_emulation. Work
// waits until somebody waits for it; then streams take turns at random, so that an order that nothing enforces is
// sooner or later another one.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/cuda/driver.hpp"
#include "tests/cuda_emulation.hpp"

namespace orrery::testing {

class SharedMailbox;

struct EmulationOptions {
  int devices = 1;
  std::int64_t memory_bytes = 1 << 30;  // of each device
  std::int64_t told_bytes = 0;          // that `info` tells of; 0: all of them
  int capability = 90;
  std::uint64_t seed = 1;                            // of the turns
  std::string fails_at;                              // a call of this name fails …
  std::int64_t fails_after = -1;                     // … when it is made for the n-th time, from 0; −1: never
  bool has_library = false;                          // of collectives
  std::string skips = {};                            // kernels with this in their name do nothing; empty: none
  std::uint64_t drops = 0;                           // records that get lost
  std::shared_ptr<SharedMailbox> mailbox = nullptr;  // through which it reaches GPUs of other processes
};

class EmulatedGpu final : public GpuDriver {
 public:
  explicit EmulatedGpu(const EmulationOptions& options = {});
  ~EmulatedGpu() override;

  int num_devices() const override { return options_.devices; }
  GpuInfo info(int device) const override;
  /// A clock that falls by 1 MHz with each reading.
  GpuState state(int) override { return {1.98e9 - 1e6 * double(readings_++), 300, 60}; }
  GpuStream make_stream(int device) override;
  void destroy(GpuStream stream) noexcept override;
  GpuEvent make_event(int device) override;
  void destroy(GpuEvent event) noexcept override;
  void record(GpuEvent event, GpuStream stream) override { record(event, stream, false); }
  void wait(GpuStream stream, GpuEvent event) override;
  void synchronize(GpuStream stream) override;
  std::int64_t nanoseconds(GpuEvent from, GpuEvent to) override;
  std::unique_ptr<DeviceMemory> device_memory(int device) override;
  std::unique_ptr<DeviceMemory> pinned_memory() override;
  std::unique_ptr<DeviceMemory> plain_memory(int device) override;
  void copy(std::uintptr_t to, std::uintptr_t from, std::int64_t bytes, GpuStream stream) override;
  void launch(const gpu::Launch& launch, GpuStream stream) override;
  void multiply(const GpuProduct& product, GpuStream stream) override;
  void call(void (*function)(void*), void* argument, GpuStream stream) override;
  bool collective(std::span<const GpuCollective> members) override;
  void connect(std::span<const GpuGroup> groups, const std::shared_ptr<Peers>& peers) override;
  void collective(const GpuGroup& group, std::span<const GpuCollective> members) override;
  void exchange(const GpuGroup& group, std::span<const GpuExchange> members) override;
  /// By a clock of its own, which runs a thousandth faster than that of the host and stands elsewhere.
  void stamp(GpuEvent event, GpuStream stream) override { record(event, stream, true); }
  /// Streams that take part without having waited for the first one, and waits of the host, are errors of the test.
  void begin_capture(GpuStream origin) override;
  void slot(std::int64_t slot) override { slot_ = slot; }
  std::unique_ptr<GpuGraph> end_capture(GpuStream origin) override;
  void begin_update(GpuGraph& graph, std::int64_t slot) override;
  bool end_update() override;
  std::shared_ptr<ActivitySource> activities() override;
  void mark(std::uint64_t id) override { mark_ = id; }
  /// What copies move, twice; the work is run twice as well.
  std::unique_ptr<CounterSource> counters(int device, const std::vector<std::string>& names) override;

  /// Handles and bytes that nobody has given back.
  std::size_t streams() const { return streams_.size(); }
  std::size_t events() const { return events_.size() - lent_.size(); }
  std::int64_t bytes_in_use(int device) const { return used_[static_cast<std::size_t>(device)]; }
  std::int64_t collectives() const { return collectives_; }
  /// Graphs that were captured, and how often one was launched.
  std::int64_t captures() const { return captures_; }
  std::int64_t graph_launches() const { return graph_launches_; }
  /// What ran, in the order in which it did: marks, and when by a clock that counts what runs.
  struct Ran {
    std::uint64_t mark;
    std::int64_t start_ns, end_ns;
    Activity::Kind kind = Activity::Kind::Kernel;
    std::int64_t bytes = 0;
  };
  const std::vector<Ran>& ran() const { return ran_; }

 private:
  class Memory;
  class PlainMemory;
  struct Task {
    std::function<void()> work;  // none: a wait or a record
    GpuEvent waits = nullptr, records = nullptr;
    std::uint64_t turn = 0;  // of the event that it waits for, or makes
    std::uint64_t mark = 0;
    std::string call = {};             // what asked for it
    bool stamps = false;               // records for the clock only
    std::function<bool()> ready = {};  // more that it waits for: other processes
  };
  struct CapturedTask;
  struct Graph;
  struct Capture;
  struct Stream {
    int device;
    std::deque<Task> tasks;
  };
  struct Event {
    std::uint64_t asked = 0, passed = 0;  // how often it was recorded, and how often that was reached
    std::int64_t at_ns = 0;
  };
  void enqueue(GpuStream stream, const std::string& call, std::function<void()> work);
  void push(GpuStream stream, Task task);
  void record(GpuEvent event, GpuStream stream, bool stamps);
  void update(Task task);
  void replay(const Graph& graph, GpuStream stream);
  void maybe_fail(const char* call);
  bool can_run(const Task& task) const;
  void run_one(Stream& stream);
  bool run_any();  // a task of a stream that can go on, by chance; false when there is none
  /// What a member leaves for those of other processes, and what it does when all have left something. A graph that is
  /// launched again leaves something new.
  static std::string name_of(const GpuGroup& group);
  void enqueue_give(const GpuGroup& group, std::int32_t member, GpuStream stream, std::int64_t call,
                    std::function<std::string()> give);
  void enqueue_take(const GpuGroup& group, GpuStream stream, std::int64_t call,
                    std::function<void(const std::vector<std::string>&)> take);
  bool wait_for_others();  // a little, when streams wait for other processes; false when none does

  EmulationOptions options_;
  GridRunners runners_;
  std::mt19937_64 random_;
  std::map<GpuStream, std::unique_ptr<Stream>> streams_;
  std::map<GpuEvent, std::unique_ptr<Event>> events_;
  std::vector<std::int64_t> used_;
  std::map<std::string, std::int64_t> calls_;
  std::int64_t clock_ns_ = 0, collectives_ = 0, copied_ = 0;
  std::uint64_t mark_ = 0;
  std::int64_t slot_ = -1, captures_ = 0, graph_launches_ = 0, readings_ = 0;
  std::unique_ptr<Capture> capture_;
  Graph* updated_ = nullptr;
  std::vector<std::size_t> to_update_;  // tasks of the graph, in order
  std::size_t num_updated_ = 0;
  bool update_fits_ = true;
  std::vector<std::unique_ptr<Stream>> graph_streams_;  // of launches that are under way
  std::deque<Event> graph_events_;
  std::vector<GpuEvent> lent_;  // to collectives of the library, until the device is gone
  std::vector<Ran> ran_;
  std::shared_ptr<Peers> peers_;
  std::map<std::vector<std::uint32_t>, std::int64_t> crossings_;  // collectives of a group so far
};

}  // namespace orrery::testing
