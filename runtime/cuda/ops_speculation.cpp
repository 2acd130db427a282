// SPDX-License-Identifier: Apache-2.0
// Token trees: masks, candidates, acceptance, compaction of caches.
#include "kernels/cuda/speculation.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"
#include "runtime/cuda/workspaces.hpp"

namespace orrery {
namespace {

gpu::Accept rule_of(const AcceptTree& w) {
  if (w.temperature <= 0 || w.rule == AcceptanceRule::Greedy) return gpu::Accept::Greedy;
  return w.rule == AcceptanceRule::Typical ? gpu::Accept::Typical : gpu::Accept::Rejection;
}

kernels::PhiloxKey key_of(std::int64_t seed, std::int64_t step) {
  return {static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(step)};
}

}  // namespace

template <class T>
void run(const TreeMask& w, const GpuContext<T>& c) {
  c.over(gpu::TreeMaskKernel<T>{w.batch, w.rows, w.slots, c.ints(0), c.dense(1), c.fault()}, w.batch * w.rows);
}

template <class T>
void run(const CompactCache& w, const GpuContext<T>& c) {
  c.over(gpu::CompactCacheKernel<T>{.caches = w.caches,
                                    .batch = w.batch,
                                    .rows = w.rows,
                                    .cols = w.cols,
                                    .capacity = w.capacity,
                                    .lengths = c.ints(0),
                                    .path = c.ints(1),
                                    .cache = c.dense(2),
                                    .fault = c.fault()},
         w.caches * w.batch * w.cols);
}

template <class T>
void run(const DraftCandidates& w, const GpuContext<T>& c) {
  c.launch(gpu::DraftCandidatesKernel<T>{.rows = w.rows,
                                         .vocab = w.vocab,
                                         .k = w.k,
                                         .temperature = w.temperature > 0 ? w.temperature : 1.0,
                                         .key = key_of(w.seed, c.at(w.step)),
                                         .logits = c.dense(0),
                                         .tokens = c.template elements_of<std::int32_t>(1),
                                         .probabilities = c.dense(2),
                                         .distribution = w.drawn ? c.dense(3) : nullptr,
                                         .keys = c.template scratch<double>()},
           std::min(w.rows, kCandidateBlocks), gpu::kTreeShared);
}

template <class T>
void run(const AcceptTree& w, const GpuContext<T>& c) {
  const int path = w.drafts ? 5 : 3;
  c.each_row(gpu::AcceptTreeKernel<T>{.batch = w.batch,
                                      .nodes = w.nodes,
                                      .depth = w.depth,
                                      .vocab = w.vocab,
                                      .rule = rule_of(w),
                                      .temperature = w.temperature > 0 ? w.temperature : 1.0,
                                      .epsilon = w.epsilon,
                                      .delta = w.delta,
                                      .key = key_of(w.seed, c.at(w.step)),
                                      .logits = c.dense(0),
                                      .tokens = c.ints(1),
                                      .parents = c.ints(2),
                                      .drafts = w.drafts ? c.dense(3) : nullptr,
                                      .draft_rows = w.drafts ? c.ints(4) : nullptr,
                                      .path = c.template elements_of<std::int32_t>(path),
                                      .next = c.template elements_of<std::int32_t>(path + 1),
                                      .room = c.template scratch<double>(),
                                      .fault = c.fault()},
             w.batch, gpu::kTreeShared);
}

Kernel find_gpu_speculation(const Work& work) {
  return find_gpu_typed<TreeMask, CompactCache, DraftCandidates, AcceptTree>(work);
}

}  // namespace orrery
