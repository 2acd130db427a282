// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cuda/rows.hpp"
#include "kernels/cuda/scatter.hpp"
#include "kernels/cuda/tokens.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"

namespace orrery {

static void run(const LocalIndices& l, const GpuContext<void>& c) {
  c.over(gpu::LocalIndicesKernel{l.rows, l.classes, c.ints(0), c.ints(1), c.elements_of<std::int32_t>(2)}, l.rows);
}

template <class T>
void run(const Gather& g, const GpuContext<T>& c) {
  c.each_row(gpu::GatherKernel<T>{.rows = g.rows,
                                  .cols = g.cols,
                                  .first = g.first,
                                  .last = g.last,
                                  .index = c.ints(1),
                                  .table = c.dense(0),
                                  .out = c.dense(2),
                                  .adds = c.write_mode(2) == kernels::Write::Accumulate,
                                  .wide = c.is_wide(0, g.table_rows, g.cols) && c.is_wide(2, g.rows, g.cols)},
             g.rows);
}

/// Rows with the same index side by side, in their order, through scratch.
template <class T>
gpu::SortedRows sort(const GpuContext<T>& c, gpu::SortedRows rows) {
  auto* orders = c.template scratch<std::int32_t>();  // two of them, then counts
  std::int32_t* counts = orders + 2 * rows.rows;
  for (int pass = 0; pass < gpu::sort_passes(rows.last - rows.first); ++pass) {
    std::int32_t* out = orders + pass % 2 * rows.rows;
    rows.shift = pass * gpu::kDigitBits;
    c.each_row(gpu::CountDigitsKernel{rows, counts}, rows.blocks(), gpu::kSortedShared);
    c.launch(gpu::DigitPlacesKernel{rows.blocks(), counts}, 1, gpu::DigitPlacesKernel::kShared);
    c.each_row(gpu::PlaceRowsKernel{rows, counts, out}, rows.blocks(), gpu::kSortedShared);
    rows.from = out;
  }
  return rows;
}

template <class T>
void run(const ScatterAdd& s, const GpuContext<T>& c) {
  if (s.rows == 0) return;
  const gpu::SortedRows sorted = sort(c, {s.rows, s.first, s.last, c.ints(1), nullptr});
  const gpu::ScatterAddKernel<T> add{.in = sorted,
                                     .cols = s.cols,
                                     .x = c.dense(0),
                                     .table = c.dense(2),
                                     .wide = c.is_wide(0, s.rows, s.cols) && c.is_wide(2, s.table_rows, s.cols)};
  c.each_row(add, s.rows * add.stretches());
}

template <class T>
void run(const ScatterRows& s, const GpuContext<T>& c) {
  const std::int64_t from = c.row_stride(0, s.rows, s.cols), to = c.row_stride(2, s.table_rows, s.cols);
  if (s.rows > gpu::kUnsortedRows) {
    const gpu::SortedRows sorted = sort(c, {s.rows, 0, s.table_rows, c.ints(1), nullptr});
    c.each_row(gpu::ScatterSortedRowsKernel<T>{sorted, s.cols, from, to, c.data(0), c.data(2), c.fault()}, s.rows);
    return;
  }
  c.each_row(gpu::ScatterRowsKernel<T>{.rows = s.rows,
                                       .cols = s.cols,
                                       .table_rows = s.table_rows,
                                       .x_stride = from,
                                       .table_stride = to,
                                       .index = c.ints(1),
                                       .x = c.data(0),
                                       .table = c.data(2),
                                       .fault = c.fault()},
             s.rows, gpu::kRowShared);
}

template <class T>
void run(const MaskColumns& w, const GpuContext<T>& c) {
  c.over(gpu::MaskColumnsKernel<T>{w.rows, w.cols, w.total, c.ints(0), c.dense(1)}, w.rows * w.cols);
}

template <class T>
void run(const RotaryEmbedding& w, const GpuContext<T>& c) {
  const std::int64_t start = c.at(w.start), sequence = w.sequence > 0 ? w.sequence : w.rows;
  const std::int64_t positions = 2 * c.elements(0) / w.rot_dim;
  if (w.positions)
    c.launch(gpu::CheckRangeKernel{w.rows, c.ints(2), positions, c.fault()}, 1);
  else if (start + sequence > positions)
    c.fail(fmt::format("position {}, but '{}' holds {}", start + sequence - 1, c.operand_name(0), positions));
  const int x = c.output();
  const auto [token, head] = c.head_strides(w, x);
  const auto whole = [](std::int64_t numbers) { return numbers % gpu::kPack<T> == 0; };
  const auto aligned = [&](int i) { return c.call().place(c.operand(i)) % 16 == 0; };
  const gpu::RotaryKernel<T> k{
      .rows = w.rows,
      .heads = w.heads,
      .half = w.rot_dim / 2,
      .sequence = sequence,
      .start = start,
      .token_stride = token,
      .head_stride = head,
      .cosine = c.dense(0),
      .sine = c.dense(1),
      .x = c.data(x),
      .positions = w.positions ? c.ints(2) : nullptr,
      .interleaved = w.interleaved,
      .sign = w.inverse ? -1.0f : 1.0f,
      .wide = aligned(0) && aligned(1) && aligned(x) && whole(w.rot_dim / 2) && whole(token) && whole(head)};
  c.over(k, w.rows * w.heads * k.half / k.at_once());
}

template <class T>
void run(const Sample& s, const GpuContext<T>& c) {
  c.each_row(
      gpu::SampleKernel<T>{.rows = s.rows,
                           .vocab = s.vocab,
                           .stride = c.row_stride(0, s.rows, s.vocab),
                           .logits = c.data(0),
                           .tokens = c.template elements_of<std::int32_t>(1),
                           .temperature = static_cast<float>(s.temperature),
                           .top_k = s.top_k,
                           .top_p = s.top_p,
                           .key = {static_cast<std::uint64_t>(s.seed), static_cast<std::uint64_t>(c.at(s.step))}},
      s.rows, gpu::kSampleShared);
}

Kernel find_gpu_tokens(const Work& work) {
  if (const Kernel k = find_gpu_untyped<LocalIndices>(work)) return k;
  return find_gpu_typed<Gather, ScatterAdd, ScatterRows, MaskColumns, RotaryEmbedding, Sample>(work);
}

}  // namespace orrery
