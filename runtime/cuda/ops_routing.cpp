// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/gates.hpp"
#include "kernels/cuda/routing.hpp"
#include "kernels/cuda/tokens.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"

#include <algorithm>
#include <initializer_list>

namespace orrery {
namespace {

gpu::Score score_of(RouterScore s) { return s == RouterScore::Softmax ? gpu::Score::Softmax : gpu::Score::Sigmoid; }

constexpr std::size_t kRouteShared = gpu::kRouteThreads * sizeof(std::int32_t);

/// Whether rows of so many numbers from each of these places on can be taken 16 bytes at a time.
template <class T>
bool all_whole_chunks(std::int64_t cols, std::initializer_list<const T*> first) {
  return std::all_of(first.begin(), first.end(), [&](const T* at) {
    return are_whole_chunks(reinterpret_cast<std::uintptr_t>(at), cols * static_cast<std::int64_t>(sizeof(T)));
  });
}

}  // namespace

/// Groups are ranked as DeepSeek does: by their two best experts where a selection bias is given (V3), by the best one
/// else (V2).
template <class T>
void run(const TopKGate& g, const GpuContext<T>& c) {
  const int out = g.bias ? 2 : 1;
  c.each_row(gpu::TopKGateKernel<T>{.tokens = g.tokens,
                                    .experts = g.experts,
                                    .top_k = g.top_k,
                                    .groups = g.groups,
                                    .top_groups = g.top_groups,
                                    .score = score_of(g.score),
                                    .normalise = g.normalise,
                                    .sums_two = g.bias,
                                    .factor = static_cast<float>(g.scaling),
                                    .logits = c.dense(0),
                                    .bias = g.bias ? c.dense(1) : nullptr,
                                    .scores = c.dense(out),
                                    .weights = c.dense(out + 1),
                                    .indices = c.template elements_of<std::int32_t>(out + 2)},
             g.tokens, gpu::TopKGateKernel<T>::shared_bytes(g.experts, g.groups));
}

template <class T>
void run(const TopKGateBackward& g, const GpuContext<T>& c) {
  c.each_row(gpu::TopKGateSlopeKernel<T>{.tokens = g.tokens,
                                         .experts = g.experts,
                                         .top_k = g.top_k,
                                         .score = score_of(g.score),
                                         .normalise = g.normalise,
                                         .factor = static_cast<float>(g.scaling),
                                         .scores = c.dense(0),
                                         .dweights = c.dense(2),
                                         .indices = c.ints(1),
                                         .dlogits = c.dense(3)},
             g.tokens, gpu::TopKGateSlopeKernel<T>::shared_bytes(g.experts));
}

static void run(const RouteMap& r, const GpuContext<void>& c) {
  auto *offsets = c.elements_of<std::int32_t>(1), *source = c.elements_of<std::int32_t>(2);
  auto* counts = c.scratch<std::int32_t>();
  const std::int64_t choices = r.tokens * r.top_k;
  c.over(gpu::FillKernel<std::uint32_t>{r.rows(), reinterpret_cast<std::uint32_t*>(source), ~0u}, r.rows());
  c.each_row(gpu::CountChoicesKernel{choices, r.experts, c.ints(0), counts}, r.experts, kRouteShared);
  c.launch(gpu::RouteOffsetsKernel{r.experts, r.capacity * r.groups, counts, offsets}, 1);
  c.each_row(gpu::PlaceChoicesKernel{.choices = choices,
                                     .experts = r.experts,
                                     .top_k = r.top_k,
                                     .groups = r.capacity > 0 ? r.groups : 1,
                                     .capacity = r.capacity,
                                     .indices = c.ints(0),
                                     .offsets = offsets,
                                     .source = source,
                                     .row = c.elements_of<std::int32_t>(3)},
             r.experts * (r.capacity > 0 ? r.groups : 1), kRouteShared);
}

static void run(const SplitRoutes& s, const GpuContext<void>& c) {
  c.over(
      gpu::SplitRoutesKernel{
          .parts = s.parts, .offsets = c.ints(0), .part = c.ints(1), .spans = c.elements_of<std::int32_t>(2)},
      s.parts);
}

static void run(const MergeRoutes& m, const GpuContext<void>& c) {
  c.launch(gpu::MergeRoutesKernel{.ranks = m.ranks,
                                  .experts = m.experts,
                                  .max_rows = m.max_rows,
                                  .sent = c.ints(0),
                                  .place = c.elements_of<std::int32_t>(1),
                                  .offsets = c.elements_of<std::int32_t>(2),
                                  .fault = c.fault()},
           1);
}

/// Rows of the tokens that the sorted rows come from; zeros where there is none.
template <class T>
void run(const Permute& p, const GpuContext<T>& c) {
  const int out = c.output();
  const std::int64_t rows = p.sorted_rows();
  c.each_row(gpu::GatherKernel<T>{.rows = rows,
                                  .cols = p.cols,
                                  .first = 0,
                                  .last = p.tokens,
                                  .index = c.ints(1),
                                  .table = c.dense(0),
                                  .out = c.dense(out),
                                  .adds = false,
                                  .wide = c.is_wide(0, p.tokens, p.cols) && c.is_wide(out, rows, p.cols)},
             rows);
}

namespace {

template <class T>
void collect(const GpuContext<T>& c, std::int64_t tokens, std::int64_t top_k, std::int64_t cols, const T* weights,
             int out) {
  c.each_row(gpu::CollectRowsKernel<T>{.tokens = tokens,
                                       .top_k = top_k,
                                       .cols = cols,
                                       .x = c.dense(0),
                                       .weights = weights,
                                       .row = c.ints(1),
                                       .y = c.dense(out),
                                       .adds = c.write_mode(out) == kernels::Write::Accumulate,
                                       .wide = all_whole_chunks<T>(cols, {c.dense(0), c.dense(out)})},
             tokens);
}

}  // namespace

template <class T>
void run(const PermuteBackward& p, const GpuContext<T>& c) {
  collect<T>(c, p.tokens, p.top_k, p.cols, nullptr, 2);
}

template <class T>
void run(const Unpermute& u, const GpuContext<T>& c) {
  collect<T>(c, u.tokens, u.top_k, u.cols, c.dense(2), 3);
}

template <class T>
void run(const UnpermuteBackward& u, const GpuContext<T>& c) {
  const bool wide = all_whole_chunks<T>(u.cols, {c.dense(0), c.dense(3), c.dense(4)});
  const std::int64_t numbers = u.sorted_rows() * u.cols, choices = u.tokens * u.top_k;
  const auto clear = [&](auto word) {
    const std::int64_t words = numbers * static_cast<std::int64_t>(sizeof(T)) / static_cast<std::int64_t>(sizeof word);
    c.over(gpu::FillKernel<decltype(word)>{words, reinterpret_cast<decltype(word)*>(c.dense(4)), 0}, words);
  };
  wide ? clear(std::uint64_t{}) : clear(std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>{});
  c.each_row(gpu::UnpermuteSlopeKernel<T>{.choices = choices,
                                          .top_k = u.top_k,
                                          .cols = u.cols,
                                          .x = c.dense(0),
                                          .weights = c.dense(2),
                                          .dy = c.dense(3),
                                          .row = c.ints(1),
                                          .dx = c.dense(4),
                                          .dweights = c.dense(5),
                                          .wide = wide},
             choices, kRouteShared);
}

/// Gates that get sparse run on the host alone.
Kernel find_gpu_routing(const Work& work) {
  if (const auto* gate = std::get_if<TopKGate>(&work); gate && gate->sparse) return nullptr;
  if (const Kernel k = find_gpu_untyped<RouteMap, SplitRoutes, MergeRoutes>(work)) return k;
  return find_gpu_typed<TopKGate, TopKGateBackward, Permute, PermuteBackward, Unpermute, UnpermuteBackward>(work);
}

}  // namespace orrery
