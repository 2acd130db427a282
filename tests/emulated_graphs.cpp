// SPDX-License-Identifier: Apache-2.0
// Graphs of the emulated GPU: tasks of streams that were kept, and run again on streams of their own.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "sim/base/error.hpp"
#include "tests/emulated_gpu.hpp"
#include "tests/emulated_graph.hpp"

namespace orrery::testing {

/// A stream takes part from when it waits for an event of one that does.
void EmulatedGpu::Capture::add(GpuStream stream, Task task, std::int64_t slot) {
  if (task.waits && recorded.contains(task.waits)) joined.insert(stream);
  if (!joined.contains(stream)) throw std::logic_error{"a stream that is not captured gets work beside a capture"};
  if (task.waits && stream == origin) unjoined.erase(recorded[task.waits]);
  if (task.records && !task.stamps)
    recorded[task.records] = stream;
  else if (!task.waits && stream != origin)
    unjoined.insert(stream);
  tasks.push_back({stream, std::move(task), slot});
}

void EmulatedGpu::begin_capture(GpuStream origin) {
  if (capture_) throw std::logic_error{"a capture in a capture"};
  capture_ = std::make_unique<Capture>();
  capture_->origin = origin;
  capture_->joined.insert(origin);
}

std::unique_ptr<GpuGraph> EmulatedGpu::end_capture(GpuStream origin) {
  if (!capture_) throw DeviceError{"end_capture: nothing is captured"};
  const std::unique_ptr<Capture> done = std::move(capture_);
  if (done->origin != origin) throw std::logic_error{"a capture ends on another stream"};
  if (!done->unjoined.empty()) throw std::logic_error{"a stream of a capture was not joined"};
  ++captures_;
  auto graph = std::make_unique<Graph>(*this);
  graph->tasks = std::move(done->tasks);
  return graph;
}

void EmulatedGpu::begin_update(GpuGraph& graph, std::int64_t slot) {
  updated_ = static_cast<Graph*>(&graph);
  to_update_.clear();
  num_updated_ = 0;
  update_fits_ = true;
  for (std::size_t i = 0; i < updated_->tasks.size(); ++i)
    if (updated_->tasks[i].slot == slot) to_update_.push_back(i);
}

void EmulatedGpu::update(Task task) {
  if (num_updated_ < to_update_.size() && updated_->tasks[to_update_[num_updated_]].task.call == task.call)
    updated_->tasks[to_update_[num_updated_]].task.work = std::move(task.work);
  else
    update_fits_ = false;
  ++num_updated_;
}

bool EmulatedGpu::end_update() {
  updated_ = nullptr;
  return update_fits_ && num_updated_ == to_update_.size();
}

/// Each launch has streams and events of its own; stamps are those of the plan.
void EmulatedGpu::replay(const Graph& graph, GpuStream stream) {
  maybe_fail("graph");
  ++graph_launches_;
  std::erase_if(graph_streams_, [](const auto& s) { return s->tasks.empty(); });
  if (graph_streams_.empty()) graph_events_.clear();
  const auto fresh = [&] { return reinterpret_cast<GpuEvent>(&graph_events_.emplace_back()); };
  std::map<GpuStream, Stream*> streams;
  std::map<GpuEvent, GpuEvent> events;  // the last record of each
  const GpuEvent began = fresh();
  auto& outer = streams_.at(stream)->tasks;
  outer.push_back({nullptr, nullptr, began, 1});
  for (const CapturedTask& c : graph.tasks) {
    Stream*& s = streams[c.stream];
    if (!s) {
      s = graph_streams_.emplace_back(std::make_unique<Stream>()).get();
      s->tasks.push_back({nullptr, began, nullptr, 1});
    }
    Task task = c.task;
    if (task.waits) {
      if (!events.contains(task.waits)) continue;
      task.waits = events[task.waits], task.turn = 1;
    } else if (task.records && !task.stamps) {
      task.records = events[c.task.records] = fresh(), task.turn = 1;
    } else if (task.records) {
      task.turn = ++reinterpret_cast<Event*>(task.records)->asked;
    }
    s->tasks.push_back(std::move(task));
  }
  for (const auto& [captured, s] : streams) {
    const GpuEvent end = fresh();
    s->tasks.push_back({nullptr, nullptr, end, 1});
    outer.push_back({nullptr, end, nullptr, 1});
  }
}

}  // namespace orrery::testing
