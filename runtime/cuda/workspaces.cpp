// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/workspaces.hpp"

#include <algorithm>

#include "kernels/cuda/attention_rows.hpp"
#include "kernels/cuda/norms.hpp"
#include "kernels/cuda/eight_bit.hpp"
#include "kernels/cuda/scatter.hpp"
#include "runtime/cuda/gpu_executor.hpp"

namespace orrery {
namespace {

namespace gpu = kernels::cuda;

constexpr std::int64_t kWarpsToFill = 1024, kLeastKeys = 128, kMostSplits = 64;
constexpr std::int64_t kFloat = sizeof(float);

std::int64_t queries(const AttentionShape& s) { return s.batch * s.heads * s.q; }

/// Bytes of scratch of a kind: an overload for each kind whose kernels need any.
struct Scratch {
  std::int64_t operator()(const Gemm& g) const {
    return g.narrow == Narrow::EightBits ? eight_bit_scratch(g).end : kProductWorkspace;
  }
  std::int64_t operator()(const GroupedGemm& g) const {
    return g.narrow == Narrow::EightBits ? grouped_scratch(g).end : 0;
  }
  std::int64_t operator()(const AttentionForward& a) const {
    const std::int64_t splits =
        a.shape.kv.is_bound() ? key_splits(a.shape, kMostSplits * kLeastKeys) : key_splits(a.shape, a.shape.kv.base);
    return splits > 1 ? splits * queries(a.shape) * (a.shape.v_dim + 1) * kFloat : 0;
  }
  std::int64_t operator()(const PagedAttention& p) const {
    const std::int64_t splits = key_splits(p);
    return splits > 1 ? splits * p.rows * p.heads * (p.v_dim + 1) * kFloat : 0;
  }
  std::int64_t operator()(const AttentionBackward& a) const { return 2 * queries(a.shape) * kFloat; }  // δ and lse
  std::int64_t operator()(const NormBackward& n) const { return 2 * gpu::norm_parts(n.rows) * n.dim * kFloat; }
  std::int64_t operator()(const NormBackwardSums& n) const { return 2 * gpu::column_parts(n.rows) * n.cols * kFloat; }
  std::int64_t operator()(const SumRows& s) const {
    return gpu::column_parts(s.rows / s.period) * s.period * s.cols * kFloat;
  }
  std::int64_t operator()(const CrossEntropyForward& c) const { return c.rows * kFloat; }
  std::int64_t operator()(const CrossEntropyFinish& c) const { return c.rows * kFloat; }
  std::int64_t operator()(const SumSquares&) const { return gpu::kSumBlocks * std::int64_t{sizeof(double)}; }
  std::int64_t operator()(const BinaryCrossEntropyForward& b) const { return b.rows * kFloat; }
  std::int64_t operator()(const ScatterAdd& s) const {
    return gpu::sort_numbers(s.rows) * std::int64_t{sizeof(std::int32_t)};
  }
  std::int64_t operator()(const ScatterRows& s) const {
    return s.rows > gpu::kUnsortedRows ? gpu::sort_numbers(s.rows) * std::int64_t{sizeof(std::int32_t)} : 0;
  }
  std::int64_t operator()(const RouteMap& r) const { return r.experts * std::int64_t{sizeof(std::int32_t)}; }
  std::int64_t operator()(const DraftCandidates& d) const {
    return std::min(d.rows, kCandidateBlocks) * 2 * d.vocab * std::int64_t{sizeof(double)};
  }
  std::int64_t operator()(const AcceptTree& a) const {
    return a.batch * (2 * a.vocab * std::int64_t{sizeof(double)} + a.nodes * std::int64_t{sizeof(std::int32_t)});
  }
  template <class K>
  std::int64_t operator()(const K&) const {
    return 0;
  }
};

class GpuWorkspaces final : public WorkspaceModel {
 public:
  Bytes workspace(const Work& work) const override {
    const auto bytes = std::visit(Scratch{}, work);
    if (bytes == 0) return Bytes{0};
    return ceil_to(Bytes{static_cast<double>(bytes + kScratchPlace)}, kAllocationUnit) - kAllocationUnit;
  }
};

}  // namespace

static std::int64_t up(std::int64_t bytes) { return gpu::blocks_of(bytes, kScratchPlace) * kScratchPlace; }

GroupedScratch grouped_scratch(const GroupedGemm& g) {
  const std::int64_t rows = std::max(g.rows, g.max_rows);
  GroupedScratch s;
  s.left = {.rows = rows, .cols = g.mode == GroupedMode::InputGradient ? g.n : g.k};
  s.right = {.rows = g.groups * (g.transpose_b ? g.n : g.k), .cols = g.transpose_b ? g.k : g.n};
  if (g.mode == GroupedMode::WeightGradient) s.right = {.rows = rows, .cols = g.n};
  for (GroupedScratch::Operand* o : {&s.left, &s.right}) {
    o->row = gpu::blocks_of(o->cols, gpu::kEightBitRow) * gpu::kEightBitRow;
    o->at = s.parts;
    s.parts += up(o->rows * o->row);
  }
  s.scales = s.parts + gpu::kLargestBlocks * kFloat;
  s.end = s.scales + 2 * kFloat;
  return s;
}

EightBitScratch eight_bit_scratch(const Gemm& g) {
  EightBitScratch s;
  s.row = gpu::blocks_of(g.k, gpu::kEightBitRow) * gpu::kEightBitRow;
  s.b = up(g.batch * g.m * s.row);
  s.parts = s.b + up(g.batch * g.n * s.row);
  s.scales = s.parts + gpu::kLargestBlocks * kFloat;
  s.product = up(s.scales + 2 * kScalePlace);
  s.end = s.product + kProductWorkspace;
  return s;
}

/// `rows` that share keys, of `sharing` sequences and heads of keys.
static std::int64_t key_splits(std::int64_t rows, std::int64_t sharing, DType dtype, std::int64_t keys) {
  const std::int64_t together = gpu::rows_together(rows, bits(dtype) / 8);
  const std::int64_t warps = std::max<std::int64_t>(1, sharing * gpu::blocks_of<std::int64_t>(rows, together));
  return std::clamp<std::int64_t>(std::min(gpu::blocks_of(kWarpsToFill, warps), keys / kLeastKeys), 1, kMostSplits);
}

std::int64_t key_splits(const AttentionShape& s, std::int64_t keys) {
  return key_splits(s.heads / s.kv_heads * s.q, s.batch * s.kv_heads, s.dtype, keys);
}

std::int64_t key_splits(const PagedAttention& p) {
  return key_splits(p.heads / p.kv_heads, p.rows * p.kv_heads, p.dtype, p.page * p.max_pages);
}

const WorkspaceModel& gpu_workspaces() {
  static const GpuWorkspaces model;  // without state: shared as a constant
  return model;
}

}  // namespace orrery
