// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "kernels/host/indexing.hpp"
#include "kernels/host/moe_gate.hpp"
#include "kernels/host/moe_permute.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {
namespace {

kernels::GateScore score_of(RouterScore s) {
  return s == RouterScore::Softmax ? kernels::GateScore::Softmax : kernels::GateScore::Sigmoid;
}

/// The key of an execution as of dropouts: its stream in the upper, its update in the lower half.
template <class T>
void run_sparse(const TopKGate& g, const OpContext<T>& c) {
  const SparseGate& s = g.sparse;
  const std::int64_t update = c.at(s.update);
  const int out = s.by_row ? 2 : 1;
  kernels::ThresholdGateArgs<T> a;
  a.tokens = g.tokens;
  a.experts = g.experts;
  a.choices = g.top_k;
  a.temperature = s.temperature(update);
  a.threshold = s.threshold;
  a.hard = s.is_hard(update);
  a.weighs_plain = s.weighs_plain;
  a.key = {static_cast<std::uint64_t>(s.seed),
           static_cast<std::uint64_t>(s.stream) << 32 | static_cast<std::uint32_t>(update)};
  a.first_token = s.first_row;
  a.token_ids = s.by_row ? c.ints(1) : nullptr;
  a.logits = c.dense(0);
  a.scores = c.dense(out);
  a.weights = c.dense(out + 1);
  a.indices = c.template elements_of<std::int32_t>(out + 2);
  a.workspace = c.workspace();
  kernels::threshold_gate(a);
}

}  // namespace

/// Groups are ranked as DeepSeek does: by their two best experts where a selection bias is given (V3), by the best one
/// else (V2).
template <class T>
void run(const TopKGate& g, const OpContext<T>& c) {
  if (g.sparse) return run_sparse(g, c);
  const int out = g.bias ? 2 : 1;
  kernels::GateArgs<T> a;
  a.tokens = g.tokens;
  a.experts = g.experts;
  a.top_k = g.top_k;
  a.score = score_of(g.score);
  a.groups = g.groups;
  a.top_groups = g.top_groups;
  a.group_score = g.bias ? kernels::GroupScore::SumOfTop2 : kernels::GroupScore::Max;
  a.normalise = g.normalise;
  a.factor = T(g.scaling);
  a.logits = c.dense(0);
  a.selection_bias = g.bias ? c.dense(1) : nullptr;
  a.scores = c.dense(out);
  a.weights = c.dense(out + 1);
  a.indices = c.template elements_of<std::int32_t>(out + 2);
  a.workspace = c.workspace();
  kernels::gate(a);
}

template <class T>
void run(const TopKGateBackward& g, const OpContext<T>& c) {
  kernels::GateBackwardArgs<T> a;
  a.tokens = g.tokens;
  a.experts = g.experts;
  a.top_k = g.top_k;
  a.score = score_of(g.score);
  a.normalise = g.normalise;
  a.factor = T(g.factor(c.at(g.sparse.update)));
  a.scores = c.dense(0);
  a.indices = c.ints(1);
  a.dweights = c.dense(2);
  a.dlogits = c.dense(3);
  kernels::gate_backward(a);
}

/// The kernel gives the choice of a row; the op its token.
static void run(const RouteMap& r, const OpContext<void>& c) {
  auto* source = c.elements_of<std::int32_t>(2);
  kernels::RouteArgs a;
  a.tokens = r.tokens;
  a.experts = r.experts;
  a.top_k = r.top_k;
  if (r.capacity > 0) {
    a.capacity = r.capacity;
    a.layout = kernels::RouteLayout::Padded;
    a.groups = r.groups;
  } else {
    a.room = r.rows();
  }
  a.indices = c.ints(0);
  a.counts = static_cast<std::int32_t*>(c.workspace());
  a.offsets = c.elements_of<std::int32_t>(1);
  a.choice_of_row = source;
  a.row_of_choice = c.elements_of<std::int32_t>(3);
  kernels::route(a);
  if (a.offsets[r.experts] > r.rows())
    c.fail(
        fmt::format("tokens visit {} experts in all, there is room for {}; a larger `buffer` of dense_to_sparse has "
                    "room for more, 0 for all",
                    a.offsets[r.experts], r.rows()));
  for (std::int64_t i = 0; i < r.rows(); ++i)
    if (source[i] >= 0) source[i] /= static_cast<std::int32_t>(r.top_k);
}

static void run(const SplitRoutes& s, const OpContext<void>& c) {
  const std::int32_t *offsets = c.ints(0), *part = c.ints(1);
  auto* spans = c.elements_of<std::int32_t>(2);
  for (std::int64_t i = 0; i < s.parts; ++i, part += SplitRoutes::kColumns) {
    const std::int64_t first = offsets[part[0]], rows = offsets[part[0] + 1] - first;
    for (std::int64_t end = 0; end < 2; ++end)
      spans[2 * i + end] = static_cast<std::int32_t>(first + (rows * part[1 + end] + part[4]) / part[3]);
  }
}

static void run(const MergeRoutes& m, const OpContext<void>& c) {
  const std::int32_t* sent = c.ints(0);
  auto *place = c.elements_of<std::int32_t>(1), *offsets = c.elements_of<std::int32_t>(2);
  std::int32_t row = 0;
  for (std::int64_t e = 0; e < m.experts; ++e) {
    offsets[e] = row;
    for (std::int64_t r = 0; r < m.ranks; ++r) {
      const std::int64_t i = 2 * (r * m.experts + e);
      place[i] = row;
      place[i + 1] = row += sent[i + 1] - sent[i];
    }
  }
  offsets[m.experts] = row;
  if (row > m.max_rows)
    c.fail(
        fmt::format("{} rows come to the experts of this rank, there is room for {}; a larger `expert_buffer` has room "
                    "for more, 0 for all",
                    row, m.max_rows));
}

template <class T>
void run(const Permute& p, const OpContext<T>& c) {
  const std::int32_t *source = c.ints(1), *end = source + p.sorted_rows();
  const std::int64_t rows = (p.filled > 0 ? std::find(source, end, -1) : end) - source;
  kernels::gather_rows<T>(rows, p.cols, source, c.dense(0), c.dense(c.output()));
}

template <class T>
void run(const PermuteBackward& p, const OpContext<T>& c) {
  kernels::moe_permute_backward<T>(
      {.tokens = p.tokens, .top_k = p.top_k, .rows = p.tokens * p.top_k, .cols = p.cols, .row_of_choice = c.ints(1)},
      c.dense(0), c.dense(2), c.write_mode(2));
}

template <class T>
void run(const Unpermute& u, const OpContext<T>& c) {
  kernels::moe_unpermute<T>(
      {.tokens = u.tokens, .top_k = u.top_k, .rows = u.tokens * u.top_k, .cols = u.cols, .row_of_choice = c.ints(1)},
      c.dense(0), c.dense(2), c.dense(3), c.write_mode(3));
}

template <class T>
void run(const UnpermuteBackward& u, const OpContext<T>& c) {
  const std::int32_t* row_of_choice = c.ints(1);
  auto* choice_of_row = static_cast<std::int32_t*>(c.workspace());
  std::fill_n(choice_of_row, u.sorted_rows(), -1);
  std::int64_t placed = 0;
  for (std::int64_t i = 0; i < u.tokens * u.top_k; ++i) {
    if (row_of_choice[i] < 0) continue;
    choice_of_row[row_of_choice[i]] = static_cast<std::int32_t>(i);
    ++placed;
  }
  const std::int64_t rows = u.filled > 0 ? placed : u.sorted_rows();
  kernels::UnpermuteBackwardArgs<T> a;
  a.map = {u.tokens, u.top_k, rows, u.cols, row_of_choice, choice_of_row};
  a.x = c.dense(0);
  a.weights = c.dense(2);
  a.dy = c.dense(3);
  a.dx = c.dense(4);
  a.dweights = c.dense(5);
  kernels::moe_unpermute_backward(a);
}

Kernel find_routing(const Work& work) {
  if (const Kernel k = find_untyped<RouteMap, SplitRoutes, MergeRoutes>(work)) return k;
  return find_typed<TopKGate, TopKGateBackward, Permute, PermuteBackward, Unpermute, UnpermuteBackward>(work);
}

}  // namespace orrery
