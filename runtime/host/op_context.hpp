// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/host/attention.hpp"
#include "kernels/host/common.hpp"
#include "runtime/op_call.hpp"
#include "runtime/strided.hpp"

namespace orrery {

/// Where the matrices of an operand lie: distances in elements from row to row and from matrix to matrix.
struct MatrixStrides {
  std::int64_t row = 0, batch = 0;
};

/// What a host function sees of its op: operands as typed pointers with their layouts, bound values, scratch.
class OpContextBase {
 public:
  explicit OpContextBase(const OpCall& call) : call_{call} {}

  const OpCall& call() const { return call_; }
  int size() const { return static_cast<int>(call_.op->operands.size()); }
  const OperandRecord& operand(int i) const { return call_.op->operands[static_cast<std::size_t>(i)]; }
  const Layout& layout(int i) const { return *operand(i).layout; }
  std::int64_t elements(int i) const { return layout(i).shape.elements(); }
  std::int64_t at(const Extent& e) const { return e.at(*call_.bindings); }
  /// Operands that are only read come first; this many.
  int num_reads() const;
  /// The first operand that is written: the output, which for an op in place is also an input.
  int output() const;
  /// An output that the op also reads is added to.
  kernels::Write write_mode(int i) const;

  /// The first element of an operand, whatever its strides.
  template <class U>
  U* element(int i) const {
    return reinterpret_cast<U*>(call_.place(operand(i)));
  }
  /// The elements of an operand that lie one after another; throws UserError when they do not.
  template <class U>
  U* elements_of(int i) const {
    if (!operand(i).contiguous) refuse_layout(i, "its elements one after another");
    return element<U>(i);
  }
  const std::int32_t* ints(int i) const { return elements_of<std::int32_t>(i); }
  /// The rows of an op in use: as many as it says, or where they are counted the last of the offsets of operand i.
  template <class K>
  std::int64_t rows_in_use(const K& k, int i) const {
    return k.counted ? ints(i)[elements(i) - 1] : k.rows;
  }

  /// Distance between the rows of an operand read as [rows, cols] with dense rows.
  std::int64_t row_stride(int i, std::int64_t rows, std::int64_t cols) const;
  /// An operand read as [batch, rows, cols] with dense rows. An operand with one matrix only is shared by the batch.
  MatrixStrides matrix(int i, std::int64_t batch, std::int64_t rows, std::int64_t cols) const;
  /// An operand read as [batch, tokens, heads, dim]; of a cache, tokens is its capacity.
  kernels::TokenStrides tokens(int i, std::int64_t batch, std::int64_t heads, std::int64_t dim) const;
  /// Distances of an operand read as [rows, heads, head_dim] from token to token and from head to head.
  std::pair<std::int64_t, std::int64_t> head_strides(const RotaryEmbedding& w, int i) const;
  /// Tokens per sequence that an operand has room for.
  std::int64_t capacity(int i, std::int64_t batch, std::int64_t heads, std::int64_t dim) const;

  /// The rows of a cache that an append writes, as a layout of their own from the start of the cache: [at, at + rows)
  /// of each sequence.
  Layout appended_part(const AppendCache& w, int cache, std::int64_t first) const;

  void* workspace() const { return call_.workspace; }
  std::string_view op_name() const { return call_.plan->name_of((*call_.plan)[call_.op->id]); }
  std::string_view operand_name(int i) const;
  [[noreturn]] void refuse_layout(int i, std::string_view needed) const;
  [[noreturn]] void fail(const std::string& what) const;  // DeviceError that names the op

 private:
  const OpCall& call_;
};

/// The same for ops of one scalar type; `void` for ops that do not depend on one.
template <class T>
class OpContext : public OpContextBase {
 public:
  using OpContextBase::OpContextBase;
  T* data(int i) const { return element<T>(i); }
  T* dense(int i) const { return elements_of<T>(i); }
};

template <>
class OpContext<void> : public OpContextBase {
 public:
  using OpContextBase::OpContextBase;
};

}  // namespace orrery
