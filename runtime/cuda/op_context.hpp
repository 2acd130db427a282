// SPDX-License-Identifier: Apache-2.0
// What a function that enqueues an op sees: the host's view of operands, whose pointers are the device's, and launches.
#pragma once

#include "kernels/cuda/elementwise.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/workspaces.hpp"
#include "runtime/host/op_context.hpp"
#include "sim/plan/work.hpp"

namespace orrery {

namespace gpu = kernels::cuda;

gpu::NumberType number_type(DType t);

/// Whether rows from a place on, so many bytes apart, can be taken 16 bytes at a time.
inline bool are_whole_chunks(std::uintptr_t place, std::int64_t row_bytes) {
  return place % 16 == 0 && row_bytes % 16 == 0;
}

class GpuContextBase : public OpContextBase {
 public:
  using OpContextBase::OpContextBase;

  GpuQueue& queue() const { return *call().queue; }
  gpu::Fault fault() const;  // of this op
  template <class K>
  void launch(const K& kernel, std::int64_t blocks, std::size_t shared_bytes = 0) const {
    if (blocks > 0) queue().driver.launch({&gpu::kTagOf<K>, &kernel, blocks, shared_bytes}, queue().stream);
  }
  /// One thread per item.
  template <class K>
  void over(const K& kernel, std::int64_t items) const {
    if (items > 0) launch(kernel, gpu::grid_for<K>(items));
  }
  /// One block per row.
  template <class K>
  void each_row(const K& kernel, std::int64_t rows, std::size_t shared_bytes = 0) const {
    constexpr std::int64_t kMost = 1 << 16;
    launch(kernel, std::min(rows, kMost), shared_bytes);
  }
  /// Few numbers of any floating type; without an operand: none.
  gpu::Numbers numbers(int i) const { return {elements_of<void>(i), number_type(operand(i).dtype)}; }
  gpu::Numbers no_numbers() const { return {}; }
  /// Memory of `workspace` begins at a multiple of 64 bytes; scratch, at the first of 256 in it.
  template <class U>
  U* scratch(std::size_t byte_offset = 0) const {
    const auto first = reinterpret_cast<std::uintptr_t>(workspace());
    const std::uintptr_t past = first % kScratchPlace;
    return reinterpret_cast<U*>(first + (past == 0 ? 0 : kScratchPlace - past) + byte_offset);
  }
  /// Rows that operand 0 has room for, of activations whose rows are counted at run time; else those of the op.
  template <class K>
  std::int64_t rows_of(const K& k) const {
    return k.counted ? elements(0) / k.cols : k.rows;
  }
  /// How many of them are in use: the last of the offsets of operand i.
  const std::int32_t* count_at(int i) const { return ints(i) + elements(i) - 1; }
  gpu::MatrixView matrix_view(int i, std::int64_t rows, std::int64_t cols) const {
    return {element<void>(i), row_stride(i, rows, cols)};
  }
  /// Whether rows of an operand can be taken 16 bytes at a time.
  bool is_wide(int i, std::int64_t rows, std::int64_t cols) const {
    const std::int64_t size = bits(operand(i).dtype) / 8;
    return are_whole_chunks(call().place(operand(i)), cols * size) && row_stride(i, rows, cols) * size % 16 == 0;
  }
};

/// The same for ops of one scalar type; `void` for ops that do not depend on one.
template <class T>
class GpuContext : public GpuContextBase {
 public:
  using GpuContextBase::GpuContextBase;
  T* data(int i) const { return element<T>(i); }
  T* dense(int i) const { return elements_of<T>(i); }
};
template <>
class GpuContext<void> : public GpuContextBase {
 public:
  using GpuContextBase::GpuContextBase;
};

template <class K, class T>
void enqueue(const OpCall& call) {
  run(*static_cast<const K*>(call.op->work), GpuContext<T>{call});
}

template <class K>
Kernel gpu_kernel(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return &enqueue<K, float>;
    case DType::BF16:
      return &enqueue<K, gpu::bf16>;
    case DType::F16:
      return &enqueue<K, gpu::f16>;
    default:
      return nullptr;
  }
}

/// As find_typed and find_untyped of the host.
template <class... Kinds>
Kernel find_gpu_typed(const Work& work) {
  Kernel found = nullptr;
  const auto of = [&](const auto& kind) {
    using K = std::decay_t<decltype(kind)>;
    if constexpr (requires { kind.shape.dtype; })
      return gpu_kernel<K>(kind.shape.dtype);
    else
      return gpu_kernel<K>(kind.dtype);
  };
  (void)((std::holds_alternative<Kinds>(work) && (found = of(std::get<Kinds>(work)), true)) || ...);
  return found;
}
template <class... Kinds>
Kernel find_gpu_untyped(const Work& work) {
  Kernel found = nullptr;
  (void)((std::holds_alternative<Kinds>(work) && (found = &enqueue<Kinds, void>, true)) || ...);
  return found;
}

}  // namespace orrery
