// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/op_context.hpp"

#include <fmt/format.h>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// How the sizes of a [batch, tokens, heads, dim] operand are written down.
enum class TokenForm { Four, TokensHeadsDim, BatchTokensWidth, TokensWidth, Other };

TokenForm form_of(const Shape& s, std::int64_t heads, std::int64_t dim) {
  if (s.rank == 4 && s[2] == heads && s[3] == dim) return TokenForm::Four;
  if (s.rank == 3 && s[1] == heads && s[2] == dim) return TokenForm::TokensHeadsDim;
  if (s.rank == 3 && s[2] == heads * dim) return TokenForm::BatchTokensWidth;
  if (s.rank == 2 && s[1] == heads * dim) return TokenForm::TokensWidth;
  return TokenForm::Other;
}

}  // namespace

int OpContextBase::num_reads() const {
  int n = 0;
  while (n < size() && operand(n).access == Access::Read) ++n;
  return n;
}

int OpContextBase::output() const {
  int i = 0;
  while (i < size() - 1 && operand(i).access == Access::Read) ++i;
  return i;
}

kernels::Write OpContextBase::write_mode(int i) const {
  return operand(i).access == Access::ReadWrite ? kernels::Write::Accumulate : kernels::Write::Overwrite;
}

std::int64_t OpContextBase::row_stride(int i, std::int64_t rows, std::int64_t cols) const {
  if (operand(i).contiguous) return cols;
  StridedDims dims{layout(i)};
  const auto inner = dims.take(cols);
  if (!inner || *inner != 1) refuse_layout(i, "dense rows");
  if (rows == 1) return cols;
  const auto stride = dims.take(rows);
  if (!stride) refuse_layout(i, "evenly spaced rows");
  return *stride;
}

MatrixStrides OpContextBase::matrix(int i, std::int64_t batch, std::int64_t rows, std::int64_t cols) const {
  const bool shared = batch == 1 || elements(i) == rows * cols;
  if (operand(i).contiguous) return {cols, shared ? 0 : rows * cols};
  StridedDims dims{layout(i)};
  const auto inner = dims.take(cols);
  if (!inner || *inner != 1) refuse_layout(i, "dense rows");
  MatrixStrides strides{cols, 0};
  if (rows > 1) {
    const auto row = dims.take(rows);
    if (!row) refuse_layout(i, "evenly spaced rows");
    strides.row = *row;
  }
  if (!shared) {
    const auto next = dims.take(batch);
    if (!next) refuse_layout(i, "evenly spaced matrices");
    strides.batch = *next;
  }
  return strides;
}

kernels::TokenStrides OpContextBase::tokens(int i, std::int64_t batch, std::int64_t heads, std::int64_t dim) const {
  const Layout& l = layout(i);
  const auto& s = l.strides;
  switch (form_of(l.shape, heads, dim)) {
    case TokenForm::Four:
      return {s[0], s[1], s[2]};
    case TokenForm::TokensHeadsDim:
      return {l.shape[0] / batch * s[0], s[0], s[1]};
    case TokenForm::BatchTokensWidth:
      return {s[0], s[1], dim};
    case TokenForm::TokensWidth:
      return {l.shape[0] / batch * s[0], s[0], dim};
    default:
      refuse_layout(i, fmt::format("the shape [batch, tokens, {}, {}]", heads, dim));
  }
}

std::pair<std::int64_t, std::int64_t> OpContextBase::head_strides(const RotaryEmbedding& w, int i) const {
  if (operand(i).contiguous) return {w.heads * w.head_dim, w.head_dim};
  StridedDims dims{layout(i)};
  const auto inner = dims.take(w.head_dim);
  if (!inner || *inner != 1) refuse_layout(i, "dense heads");
  const auto head = w.heads == 1 ? w.head_dim : dims.take(w.heads);
  const auto token = w.rows == 1 ? w.heads * w.head_dim : dims.take(w.rows);
  if (!head || !token) refuse_layout(i, "evenly spaced tokens and heads");
  return {*token, *head};
}

std::int64_t OpContextBase::capacity(int i, std::int64_t batch, std::int64_t heads, std::int64_t dim) const {
  return elements(i) / (batch * heads * dim);
}

Layout OpContextBase::appended_part(const AppendCache& w, int cache, std::int64_t first) const {
  const std::int64_t room = elements(cache) / (w.batch * w.cols);
  if (first < 0 || first + w.rows > room)
    fail(fmt::format("rows {} to {} of a cache '{}' of {}", first, first + w.rows - 1, operand_name(cache), room));
  Layout part = layout(cache);
  const int tokens = part.shape.rank == 2 && w.batch == 1 ? 0 : 1;
  if (part.shape[tokens] != room) refuse_layout(cache, "the shape [batch, capacity, …]");
  part.shape.sizes[static_cast<std::size_t>(tokens)] = w.rows;
  part.offset = first * part.strides[static_cast<std::size_t>(tokens)];
  return part;
}

std::string_view OpContextBase::operand_name(int i) const { return call_.plan->name_of(operand(i).tensor); }

void OpContextBase::refuse_layout(int i, std::string_view needed) const {
  throw UserError{fmt::format("op '{}' cannot use '{}': it needs {}", op_name(), operand_name(i), needed)};
}

void OpContextBase::fail(const std::string& what) const {
  throw DeviceError{
      fmt::format("op {} '{}' on rank {}: {}", call_.op->id.index(), op_name(), call_.rank.index(), what)};
}

}  // namespace orrery
