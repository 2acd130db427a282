// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/workspaces.hpp"

#include <algorithm>

#include "kernels/host/attention.hpp"
#include "kernels/host/gemm.hpp"
#include "kernels/host/moe_gate.hpp"
#include "kernels/host/sampling.hpp"
#include "kernels/host/speculation.hpp"
#include "runtime/executor.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kBoundKeys = 8192;

std::size_t element_size(DType t) { return t == DType::F64 ? sizeof(double) : sizeof(float); }

kernels::AttentionDims dims(const AttentionShape& s) {
  return {s.batch, s.q, planned_keys(s), s.heads, s.kv_heads, s.qk_dim, s.v_dim};
}

std::size_t grouped_workspace(const GroupedGemm& g, std::size_t size) {
  const std::int64_t rows = std::max(g.rows, g.max_rows);
  return std::max(kernels::grouped_gemm_workspace(rows, g.k, g.n, size),
                  kernels::grouped_gemm_workspace(rows, g.n, g.k, size));
}

/// Scratch of a kind: an overload for each kind whose host function needs any.
struct Scratch {
  std::size_t operator()(const Gemm& g) const {
    const std::size_t size = element_size(g.dtype);
    if (g.narrow == Narrow::None) return kernels::gemm_workspace({g.m, g.n, g.k}, size);
    return narrow_offset(g, size) + static_cast<std::size_t>(g.batch * g.k * (g.m + g.n)) * size;
  }
  std::size_t operator()(const GroupedGemm& g) const {
    const std::size_t size = element_size(g.dtype);
    if (g.narrow == Narrow::None) return grouped_workspace(g, size);
    const std::int64_t rows = std::max(g.rows, g.max_rows);
    return narrow_offset(g, size) + static_cast<std::size_t>(rows * (g.k + g.n) + g.groups * g.k * g.n) * size;
  }
  std::size_t operator()(const AttentionForward& a) const {
    const std::size_t size = element_size(a.shape.dtype);
    const auto lse = static_cast<std::size_t>(a.shape.batch * a.shape.heads * a.shape.q) * size;
    return attention_scratch(a.shape, size) + (a.keep_lse ? 0 : lse);
  }
  std::size_t operator()(const AttentionBackward& a) const {
    return kernels::attention_backward_workspace(dims(a.shape), element_size(a.shape.dtype));
  }
  std::size_t operator()(const PagedAttention& a) const {
    const std::size_t size = element_size(a.dtype);
    return attention_scratch(a, size) + static_cast<std::size_t>(a.heads * a.rows) * size;
  }
  std::size_t operator()(const CrossEntropyForward& c) const {
    return static_cast<std::size_t>(c.rows) * element_size(c.dtype);
  }
  std::size_t operator()(const Sample& s) const { return kernels::sample_workspace(s.vocab, element_size(s.dtype)); }
  std::size_t operator()(const DraftCandidates& d) const { return kernels::draft_candidates_workspace(d.vocab); }
  std::size_t operator()(const AcceptTree& a) const { return kernels::accept_tree_workspace(a.nodes, a.vocab); }
  std::size_t operator()(const TopKGate& g) const {
    return kernels::gate_workspace(g.experts, g.groups, element_size(g.dtype));
  }
  std::size_t operator()(const RouteMap& r) const { return static_cast<std::size_t>(r.experts) * sizeof(std::int32_t); }
  std::size_t operator()(const UnpermuteBackward& u) const {
    return static_cast<std::size_t>(u.sorted_rows()) * sizeof(std::int32_t);
  }
  template <class K>
  std::size_t operator()(const K&) const {
    return 0;
  }
};

class HostWorkspaces final : public WorkspaceModel {
 public:
  Bytes workspace(const Work& work) const override {
    const std::size_t bytes = std::visit(Scratch{}, work);
    return bytes == 0 ? Bytes{0} : ceil_to(Bytes{static_cast<double>(bytes)}, kAllocationUnit);
  }
};

}  // namespace

std::int64_t planned_keys(const AttentionShape& shape) {
  if (!shape.kv.is_bound()) return shape.kv.base;
  return std::max<std::int64_t>(shape.kv.base, 1) + (shape.q > kFewQueries ? kBoundKeys : 0);
}

std::size_t attention_scratch(const AttentionShape& shape, std::size_t element_size) {
  const std::size_t bytes = kernels::attention_workspace(dims(shape), element_size);
  return (bytes + 63) / 64 * 64;
}

std::size_t attention_scratch(const PagedAttention& w, std::size_t element_size) {
  const kernels::AttentionDims d{w.sequences, w.rows, w.page * w.max_pages, w.heads, w.kv_heads, w.qk_dim, w.v_dim};
  return (kernels::attention_workspace(d, element_size) + 63) / 64 * 64;
}

std::size_t narrow_offset(const Gemm& g, std::size_t element_size) {
  return (kernels::gemm_workspace({g.m, g.n, g.k}, element_size) + 63) / 64 * 64;
}

std::size_t narrow_offset(const GroupedGemm& g, std::size_t element_size) {
  return (grouped_workspace(g, element_size) + 63) / 64 * 64;
}

const WorkspaceModel& host_workspaces() {
  static const HostWorkspaces model;  // without state: shared as a constant
  return model;
}

}  // namespace orrery
