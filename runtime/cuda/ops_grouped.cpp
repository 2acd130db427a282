// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/grouped.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"
#include "runtime/cuda/workspaces.hpp"

namespace orrery {
namespace {

/// Where the operands of a product lie: the first, rows of all groups; the second, weights or rows. From row to row in
/// numbers; scales of numbers of 8 bits, or null.
template <class In>
struct Placed {
  const In *left, *right;
  std::int64_t left_row, right_row;
  const float *left_scale = nullptr, *right_scale = nullptr;
};

/// Weights [groups, n, k] swap rows and columns of the group's matrix; a weight gradient of that form takes its
/// operands in the other order.
template <class In, class Out>
void multiply(const GroupedGemm& g, const GpuContextBase& c, const Placed<In>& in) {
  const bool gradient = g.mode == GroupedMode::WeightGradient, swaps = gradient && g.transpose_b;
  gpu::GroupedProductKernel<In, Out> p{.groups = g.groups,
                                       .rows = std::max(g.rows, g.max_rows),
                                       .m = 0,
                                       .n = g.mode == GroupedMode::InputGradient ? g.k : g.n,
                                       .k = g.mode == GroupedMode::InputGradient ? g.n : g.k,
                                       .offsets = c.ints(2),
                                       .a = swaps ? in.right : in.left,
                                       .b = swaps ? in.left : in.right,
                                       .c = c.template elements_of<Out>(3),
                                       .a_at = {},
                                       .b_at = {},
                                       .c_at = {},
                                       .sums_rows = gradient,
                                       .adds = g.accumulate,
                                       .scale_a = in.left_scale,
                                       .scale_b = in.right_scale};
  if (gradient) {
    p.m = swaps ? g.n : g.k;
    p.n = swaps ? g.k : g.n;
    p.a_at = {0, 1, swaps ? in.right_row : in.left_row};
    p.b_at = {0, swaps ? in.left_row : in.right_row, 1};
    p.c_at = {p.m * p.n, p.n, 1};
  } else {
    const bool across = (g.mode == GroupedMode::InputGradient) != g.transpose_b;  // W is read by its columns
    const std::int64_t each = (g.transpose_b ? g.n : g.k) * in.right_row;
    p.a_at = {0, in.left_row, 1};
    p.b_at = across ? gpu::GroupMatrix{each, 1, in.right_row} : gpu::GroupMatrix{each, in.right_row, 1};
    p.c_at = {0, p.n, 1};
  }
  c.launch(p, std::min<std::int64_t>(p.tiles(), 1 << 20), p.kShared);
}

/// One operand cast into scratch, of which the rows before *end count; null: all.
template <class T>
const gpu::e4m3* cast(const GpuContext<T>& c, int operand, const GroupedScratch::Operand& o, const std::int32_t* end,
                      float* parts, float* scale) {
  auto* out = c.template scratch<std::uint32_t>(static_cast<std::size_t>(o.at));
  const gpu::StridedMatrices<T> in{1, o.rows, o.cols, 0, o.cols, 1, c.dense(operand)};
  const std::int64_t blocks = std::min(gpu::kLargestBlocks, gpu::grid_for<gpu::LargestPartsKernel<T>>(o.rows * o.cols));
  c.launch(gpu::LargestPartsKernel<T>{in, parts, end}, blocks, gpu::kLargestShared);
  c.launch(gpu::EightBitScaleKernel{blocks, parts, scale}, 1, gpu::kLargestShared);
  c.over(gpu::EightBitKernel<T>{in, o.row, scale, out}, o.rows * o.row / 4);
  return reinterpret_cast<const gpu::e4m3*>(out);
}

/// Both operands are cast, each with a scale of its own: rows behind those of the last group hold nothing of use.
template <class T>
void multiply_in_eight_bits(const GroupedGemm& g, const GpuContext<T>& c) {
  const GroupedScratch s = grouped_scratch(g);
  auto* parts = c.template scratch<float>(static_cast<std::size_t>(s.parts));
  auto* scales = c.template scratch<float>(static_cast<std::size_t>(s.scales));
  const std::int32_t* end = c.ints(2) + g.groups;
  const bool gradient = g.mode == GroupedMode::WeightGradient;
  const gpu::e4m3* left = cast(c, 0, s.left, end, parts, scales);
  const gpu::e4m3* right = cast(c, 1, s.right, gradient ? end : nullptr, parts, scales + 1);
  const Placed<gpu::e4m3> in{left, right, s.left.row, s.right.row, scales, scales + 1};
  g.wide ? multiply<gpu::e4m3, float>(g, c, in) : multiply<gpu::e4m3, T>(g, c, in);
}

}  // namespace

template <class T>
void run(const GroupedGemm& g, const GpuContext<T>& c) {
  if constexpr (sizeof(T) == 2)
    if (g.narrow == Narrow::EightBits) return multiply_in_eight_bits(g, c);
  const GroupedScratch s = grouped_scratch(g);
  const Placed<T> in{c.dense(0), c.dense(1), s.left.cols, s.right.cols};
  g.wide ? multiply<T, float>(g, c, in) : multiply<T, T>(g, c, in);
}

/// Products of weights that lie in fewer bits need scales that a plan has no operands for.
Kernel find_gpu_grouped(const Work& work) {
  const auto* g = std::get_if<GroupedGemm>(&work);
  if (!g || g->weights != Quantised::None || g->narrow == Narrow::FourBits) return nullptr;
  if (g->narrow == Narrow::EightBits && g->dtype == DType::F32) return nullptr;
  return find_gpu_typed<GroupedGemm>(work);
}

}  // namespace orrery
