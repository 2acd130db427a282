// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/native/graphs.hpp"

#include <utility>

namespace orrery {
NativeGraph::NativeGraph(cudaGraph_t graph, GraphCalls calls, std::shared_ptr<NativeGraphs> all)
    : all_{std::move(all)}, graph_{graph}, calls_{std::move(calls)} {
  if (const cudaError_t result = cudaGraphInstantiate(&executable_, graph_, 0); result != cudaSuccess) {
    cudaGraphDestroy(graph_);
    check_cuda(result, "cudaGraphInstantiate");
  }
  all_->insert(this);
}

NativeGraph::~NativeGraph() {
  all_->erase(this);
  drop();
}

void NativeGraph::drop() noexcept {
  if (executable_) cudaGraphExecDestroy(std::exchange(executable_, nullptr));
  if (graph_) cudaGraphDestroy(std::exchange(graph_, nullptr));
}

void NativeGraph::launch(GpuStream stream) { ORRERY_CUDA(cudaGraphLaunch(executable_, native(stream))); }

/// Relaxed: memory may grow meanwhile.
GraphCapture::GraphCapture(GpuStream origin) {
  ORRERY_CUDA(cudaStreamBeginCapture(native(origin), cudaStreamCaptureModeRelaxed));
}

void GraphCapture::called(GpuStream stream, const void* function) {
  if (slot_ < 0) return;
  cudaStreamCaptureStatus status{};
  const cudaGraphNode_t* last = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  ORRERY_CUDA(cudaStreamGetCaptureInfo(native(stream), &status, nullptr, nullptr, &last, &edges, &count));
  // What a stream goes on from is the node that it has just got.
  if (status == cudaStreamCaptureStatusActive && count == 1) calls_[slot_].push_back({last[0], function});
}

std::unique_ptr<GpuGraph> GraphCapture::end(GpuStream origin, const std::shared_ptr<NativeGraphs>& all) {
  cudaGraph_t graph = nullptr;
  ORRERY_CUDA(cudaStreamEndCapture(native(origin), &graph));
  return std::make_unique<NativeGraph>(graph, std::move(calls_), all);
}

GraphUpdate::GraphUpdate(GpuGraph& graph, std::int64_t slot) : graph_{static_cast<NativeGraph&>(graph)} {
  if (const auto it = graph_.calls_.find(slot); it != graph_.calls_.end()) calls_ = it->second;
}

cudaGraphNode_t GraphUpdate::next(cudaGraphNodeType type, const void* function) {
  cudaGraphNodeType is{};
  if (next_ < calls_.size()) ORRERY_CUDA(cudaGraphNodeGetType(calls_[next_].node, &is));
  if (next_ < calls_.size() && is == type && calls_[next_].function == function) return calls_[next_++].node;
  refuse();
  return nullptr;
}

void GraphUpdate::launch(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes) {
  const cudaGraphNode_t node = next(cudaGraphNodeTypeKernel, function);
  if (!node) return;
  cudaKernelNodeParams now{};
  now.func = const_cast<void*>(function);
  now.gridDim = grid;
  now.blockDim = block;
  now.sharedMemBytes = static_cast<unsigned>(shared_bytes);
  now.kernelParams = arguments;
  ORRERY_CUDA(cudaGraphExecKernelNodeSetParams(graph_.executable_, node, &now));
}

void GraphUpdate::copy(std::uintptr_t to, std::uintptr_t from, std::int64_t bytes) {
  if (const cudaGraphNode_t node = next(cudaGraphNodeTypeMemcpy))
    ORRERY_CUDA(cudaGraphExecMemcpyNodeSetParams1D(graph_.executable_, node, reinterpret_cast<void*>(to),
                                                   reinterpret_cast<const void*>(from), static_cast<std::size_t>(bytes),
                                                   cudaMemcpyDefault));
}

void GraphUpdate::call(void (*function)(void*), void* argument) {
  const cudaHostNodeParams now{function, argument};
  if (const cudaGraphNode_t node = next(cudaGraphNodeTypeHost))
    ORRERY_CUDA(cudaGraphExecHostNodeSetParams(graph_.executable_, node, &now));
}

}  // namespace orrery
