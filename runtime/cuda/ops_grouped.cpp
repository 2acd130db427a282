// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/grouped_float.hpp"
#include "kernels/cuda/grouped_tile.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"
#include "runtime/cuda/workspaces.hpp"

namespace orrery {
namespace {

/// Where the operands of a product lie: the first, rows of all groups; the second, weights or rows. From row to row in
/// numbers; scales of numbers of 8 bits, or null.
template <class A, class B = A>
struct Placed {
  const A* a;
  const B* b;
  std::int64_t a_row, b_row;
  const float *a_scale = nullptr, *b_scale = nullptr;

  Placed<B, A> swapped() const { return {b, a, b_row, a_row, b_scale, a_scale}; }
};

/// Weights [groups, n, k] swap rows and columns of the group's matrix; a weight gradient of that form takes its
/// operands in the other order.
bool swaps(const GroupedGemm& g) { return g.mode == GroupedMode::WeightGradient && g.transpose_b; }

/// Blocks that fill a large GPU. Where there are not as many, smaller tiles share the work out better.
constexpr std::int64_t kBlocksToFill = 128;

template <class P>
bool whole_packs(const P* at, std::int64_t row) {
  return are_whole_chunks(reinterpret_cast<std::uintptr_t>(at), row * static_cast<std::int64_t>(sizeof(P)));
}

template <class K>
void launch_tiles(const GpuContextBase& c, const K& kernel) {
  c.launch(kernel, std::min<std::int64_t>(kernel.tiles(), 1 << 20), K::kShared);
}
template <class A, class B, gpu::Lies LEFT, gpu::Lies RIGHT>
void launch_staged(const GpuContextBase& c, const gpu::GroupedProduct<A, B>& p) {
  if constexpr (sizeof(A) == 2) {
    const gpu::GroupedTileKernel<A, B, LEFT, RIGHT, gpu::kGroupedWide> wide{p};
    const int capability = c.queue().capability;
    const bool has_room = capability == 80 || (capability >= 90 && capability < 120);  // 147 KB of memory for a block
    if (has_room && wide.tiles() >= kBlocksToFill) return launch_tiles(c, wide);
  }
  launch_tiles(c, gpu::GroupedTileKernel<A, B, LEFT, RIGHT, gpu::kGroupedNarrow>{p});
}

void launch_product(const GpuContextBase& c, const gpu::GroupedProduct<float>& p) {
  const auto row = [](const gpu::GroupMatrix& m) { return std::max(m.row, m.col); };
  const auto start = [&](const auto& kernel) { launch_tiles(c, kernel); };
  const bool a = whole_packs(p.a, row(p.a_at)), b = whole_packs(p.b, row(p.b_at)),
             out = whole_packs(static_cast<const float*>(p.c.at), p.c_at.row);
  if (const gpu::GroupedFloatKernel<128> large{p, a, b, out}; large.tiles() >= kBlocksToFill) return start(large);
  start(gpu::GroupedFloatKernel<64>{p, a, b, out});
}
template <class A, class B>
void launch_product(const GpuContextBase& c, const gpu::GroupedProduct<A, B>& p) {
  using gpu::Lies;
  const std::int64_t a_row = p.sums_rows ? p.a_at.col : p.a_at.row, b_row = std::max(p.b_at.row, p.b_at.col);
  if (!whole_packs(p.a, a_row) || !whole_packs(p.b, b_row)) return launch_tiles(c, gpu::GroupedProductKernel<A, B>{p});
  if constexpr (!std::is_same_v<A, gpu::e4m3> || std::is_same_v<A, B>)
    if (!p.sums_rows)
      return p.b_at.row == 1 ? launch_staged<A, B, Lies::Along, Lies::Along>(c, p)
                             : launch_staged<A, B, Lies::Along, Lies::Down>(c, p);
  if constexpr (sizeof(A) == 2 || !std::is_same_v<A, B>) launch_staged<A, B, Lies::Down, Lies::Down>(c, p);
}

/// With the operands in the order that the product takes them.
template <class A, class B>
void multiply(const GroupedGemm& g, const GpuContextBase& c, const Placed<A, B>& in) {
  const bool gradient = g.mode == GroupedMode::WeightGradient;
  gpu::GroupedProduct<A, B> p{.groups = g.groups,
                              .rows = std::max(g.rows, g.max_rows),
                              .m = 0,
                              .n = g.mode == GroupedMode::InputGradient ? g.k : g.n,
                              .k = g.mode == GroupedMode::InputGradient ? g.n : g.k,
                              .offsets = c.ints(2),
                              .a = in.a,
                              .b = in.b,
                              .c = c.numbers(g.output_operand()),
                              .a_at = {},
                              .b_at = {},
                              .c_at = {},
                              .sums_rows = gradient,
                              .adds = g.accumulate,
                              .scale_a = in.a_scale,
                              .scale_b = in.b_scale};
  if (gradient) {
    p.m = swaps(g) ? g.n : g.k;
    p.n = swaps(g) ? g.k : g.n;
    p.a_at = {0, 1, in.a_row};
    p.b_at = {0, in.b_row, 1};
    p.c_at = {p.m * p.n, p.n, 1};
  } else {
    const bool across = (g.mode == GroupedMode::InputGradient) != g.transpose_b;  // W is read by its columns
    const std::int64_t each = (g.transpose_b ? g.n : g.k) * in.b_row;
    p.a_at = {0, in.a_row, 1};
    p.b_at = across ? gpu::GroupMatrix{each, 1, in.b_row} : gpu::GroupMatrix{each, in.b_row, 1};
    p.c_at = {0, p.n, 1};
  }
  launch_product(c, p);
}
template <class A, class B>
void multiply_in_order(const GroupedGemm& g, const GpuContextBase& c, const Placed<A, B>& in) {
  swaps(g) ? multiply(g, c, in.swapped()) : multiply(g, c, in);
}

/// One operand cast to numbers N, of which the rows before *end count; null: all.
template <class N, class T>
const N* cast(const GpuContext<T>& c, int operand, const GroupedScratch::Operand& o, const std::int32_t* end,
              std::uint32_t* out, float* parts, float* scale) {
  const gpu::StridedMatrices<T> in{1, o.rows, o.cols, 0, o.cols, 1, c.dense(operand)};
  const std::int64_t blocks = std::min(gpu::kLargestBlocks, gpu::grid_for<gpu::LargestPartsKernel<T>>(o.rows * o.cols));
  c.launch(gpu::LargestPartsKernel<T>{in, parts, end}, blocks, gpu::kLargestShared);
  c.launch(gpu::EightBitScaleKernel{blocks, N::kLargest, parts, scale}, 1, gpu::kLargestShared);
  c.over(gpu::EightBitKernel<T, N>{in, o.row, scale, out}, o.rows * o.row / 4);
  return reinterpret_cast<const N*>(out);
}

/// Both operands are cast, each with a scale of its own: rows behind those of the last group hold nothing of use.
template <class Left, class Right, class T>
void multiply_cast(const GroupedGemm& g, const GpuContext<T>& c) {
  const GroupedScratch s = grouped_scratch(g);
  auto* parts = c.template scratch<float>(static_cast<std::size_t>(s.parts));
  auto* scales = c.template scratch<float>(static_cast<std::size_t>(s.scales));
  const std::int32_t* end = c.ints(2) + g.groups;
  const bool gradient = g.mode == GroupedMode::WeightGradient;
  const auto in_scratch = [&](const GroupedScratch::Operand& o) {
    return c.template scratch<std::uint32_t>(static_cast<std::size_t>(o.at));
  };
  Placed<Left, Right> in{nullptr, nullptr, s.left.row, s.right.row, scales, scales + 1};
  if (g.input == InputCast::Read) {
    in.a = c.template elements_of<Left>(0);
    in.a_row = s.left.cols;
    in.a_scale = c.template element<float>(g.scale_operand());
  } else if (g.input == InputCast::Written) {
    const int numbers = g.output_operand() + 1;
    auto* scale = c.template element<float>(numbers + 1);
    in.a = cast<Left>(c, 0, s.left, end, c.template elements_of<std::uint32_t>(numbers), parts, scale);
    in.a_scale = scale;
  } else {
    in.a = cast<Left>(c, 0, s.left, end, in_scratch(s.left), parts, scales);
  }
  in.b = cast<Right>(c, 1, s.right, gradient ? end : nullptr, in_scratch(s.right), parts, scales + 1);
  multiply_in_order(g, c, in);
}

template <class T>
void multiply_in_eight_bits(const GroupedGemm& g, const GpuContext<T>& c) {
  if (g.mode == GroupedMode::Forward) return multiply_cast<gpu::e4m3, gpu::e4m3>(g, c);
  if (g.mode == GroupedMode::InputGradient) return multiply_cast<gpu::e5m2, gpu::e4m3>(g, c);
  multiply_cast<gpu::e4m3, gpu::e5m2>(g, c);
}

}  // namespace

template <class T>
void run(const GroupedGemm& g, const GpuContext<T>& c) {
  if constexpr (sizeof(T) == 2)
    if (g.narrow == Narrow::EightBits) return multiply_in_eight_bits(g, c);
  const GroupedScratch s = grouped_scratch(g);
  const Placed<T> in{c.dense(0), c.dense(1), s.left.cols, s.right.cols};
  multiply_in_order(g, c, in);
}

/// Products of weights that lie in fewer bits need scales that a plan has no operands for.
Kernel find_gpu_grouped(const Work& work) {
  const auto* g = std::get_if<GroupedGemm>(&work);
  if (!g || g->weights != Quantised::None || g->narrow == Narrow::FourBits) return nullptr;
  if (g->input == InputCast::Written && g->k % gpu::kEightBitRow != 0) return nullptr;
  const bool wide = g->wide && g->mode != GroupedMode::WeightGradient;
  if (g->narrow == Narrow::EightBits && (g->dtype == DType::F32 || wide)) return nullptr;
  return find_gpu_typed<GroupedGemm>(work);
}

}  // namespace orrery
