// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/native/check.hpp"

namespace orrery {

inline cudaStream_t native(GpuStream s) { return reinterpret_cast<cudaStream_t>(s); }

/// What a call has left in a graph; `function`: of a kernel, as it was launched.
struct GraphCall {
  cudaGraphNode_t node = nullptr;
  const void* function = nullptr;
};
/// The calls of each slot in their order.
using GraphCalls = std::map<std::int64_t, std::vector<GraphCall>>;

class NativeGraph;
/// Those that there are.
using NativeGraphs = std::set<NativeGraph*>;

/// A captured graph, instantiated.
class NativeGraph final : public GpuGraph {
 public:
  NativeGraph(cudaGraph_t graph, GraphCalls calls, std::shared_ptr<NativeGraphs> all);
  ~NativeGraph() override;
  NativeGraph(const NativeGraph&) = delete;
  NativeGraph& operator=(const NativeGraph&) = delete;
  void launch(GpuStream stream) override;
  /// Gives back what it has. A launch that is under way is not held up: CUDA waits for its end by itself.
  void drop() noexcept;

 private:
  friend class GraphUpdate;
  std::shared_ptr<NativeGraphs> all_;
  cudaGraph_t graph_;
  cudaGraphExec_t executable_ = nullptr;
  GraphCalls calls_;
};

/// Streams that are being captured: what the calls of a slot have left.
class GraphCapture {
 public:
  explicit GraphCapture(GpuStream origin);
  void slot(std::int64_t slot) { slot_ = slot; }
  /// A call on a stream has been captured; of a kernel by its function.
  void called(GpuStream stream, const void* function);
  std::unique_ptr<GpuGraph> end(GpuStream origin, const std::shared_ptr<NativeGraphs>& all);

 private:
  std::int64_t slot_ = -1;
  GraphCalls calls_;
};

/// Calls that replace those of a slot. One that has no counterpart of its kind makes the update unfit.
class GraphUpdate {
 public:
  GraphUpdate(GpuGraph& graph, std::int64_t slot);
  void launch(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes);
  void copy(std::uintptr_t to, std::uintptr_t from, std::int64_t bytes);
  void call(void (*function)(void*), void* argument);
  void refuse() { fits_ = false; }
  bool fits() const { return fits_ && next_ == calls_.size(); }

 private:
  /// The next node, when it is of this type and function; else null.
  cudaGraphNode_t next(cudaGraphNodeType type, const void* function = nullptr);

  NativeGraph& graph_;
  std::vector<GraphCall> calls_;
  std::size_t next_ = 0;
  bool fits_ = true;
};

}  // namespace orrery
