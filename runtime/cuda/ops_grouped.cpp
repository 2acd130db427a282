// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/grouped.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"

namespace orrery {
namespace {

/// Weights [groups, n, k] swap rows and columns of the group's matrix; a weight gradient of that form takes its
/// operands in the other order.
template <class T, class Out>
void multiply(const GroupedGemm& g, const GpuContext<T>& c) {
  const bool gradient = g.mode == GroupedMode::WeightGradient, swaps = gradient && g.transpose_b;
  gpu::GroupedProductKernel<T, Out> p{.groups = g.groups,
                                      .rows = std::max(g.rows, g.max_rows),
                                      .m = 0,
                                      .n = g.mode == GroupedMode::InputGradient ? g.k : g.n,
                                      .k = g.mode == GroupedMode::InputGradient ? g.n : g.k,
                                      .offsets = c.ints(2),
                                      .a = c.dense(swaps ? 1 : 0),
                                      .b = c.dense(swaps ? 0 : 1),
                                      .c = c.template elements_of<Out>(3),
                                      .a_at = {},
                                      .b_at = {},
                                      .c_at = {},
                                      .sums_rows = gradient,
                                      .adds = g.accumulate};
  if (gradient) {
    p.m = swaps ? g.n : g.k;
    p.n = swaps ? g.k : g.n;
    p.a_at = {0, 1, p.m};
    p.b_at = {0, p.n, 1};
    p.c_at = {p.m * p.n, p.n, 1};
  } else {
    const bool across = (g.mode == GroupedMode::InputGradient) != g.transpose_b;  // W is read by its columns
    p.a_at = {0, p.k, 1};
    p.b_at = across ? gpu::GroupMatrix{g.n * g.k, 1, p.k} : gpu::GroupMatrix{g.n * g.k, p.n, 1};
    p.c_at = {0, p.n, 1};
  }
  c.launch(p, std::min<std::int64_t>(p.tiles(), 1 << 20), p.kShared);
}

}  // namespace

template <class T>
void run(const GroupedGemm& g, const GpuContext<T>& c) {
  g.wide ? multiply<T, float>(g, c) : multiply<T, T>(g, c);
}

/// Products in 8 bits, and of weights in fewer bits, are not here.
Kernel find_gpu_grouped(const Work& work) {
  if (const auto* g = std::get_if<GroupedGemm>(&work); g && (g->eight_bit || g->weights != Quantised::None))
    return nullptr;
  return find_gpu_typed<GroupedGemm>(work);
}

}  // namespace orrery
