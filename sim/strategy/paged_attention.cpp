// SPDX-License-Identifier: Apache-2.0
// Attention of rows of many sequences whose keys and values lie in pages of a pool.
#include <fmt/format.h>

#include "sim/base/error.hpp"
#include "sim/strategy/layers.hpp"

namespace orrery {

/// Rows of a table of positions that the rows of the step stand at; all blocks share them.
TensorId Layers::picked_rows(TensorId table) {
  for (const auto& [from, rows] : paged_->picked)
    if (from == table) return rows;
  const Plan& plan = tape_.plan();
  const std::int64_t positions = plan.shape(table)[0], width = plan.shape(table)[1];
  const std::string name = fmt::format("{}_of_rows", plan.name_of(table));
  const TensorId rows = activation_tensor(name, Shape{this->rows(), width});
  tape_.add(name,
            Gather{.rows = this->rows(),
                   .cols = width,
                   .table_rows = positions,
                   .first = 0,
                   .last = positions,
                   .dtype = sizes_.dtype},
            {reads(table), reads(paged_->positions), writes(rows)});
  paged_->picked.emplace_back(table, rows);
  return rows;
}

/// New rows into their slots of a pool.
void Layers::store_rows(std::string_view name, TensorId rows, TensorId pool, std::int64_t cols) {
  tape_.add(name, ScatterRows{.rows = this->rows(), .cols = cols, .table_rows = paged_->slots, .dtype = sizes_.dtype},
            {reads(rows), reads(paged_->slot), updates(pool)});
}

TensorId Layers::paged_attention(std::string_view name, const Projected& p, const Attention& a) {
  if (!bias_.is_none())
    throw UserError{fmt::format("attention of {} has a bias: it cannot be served from pages", model().family),
                    "use the workload `generate`"};
  const TensorId o = activation_tensor(fmt::format("{}.core", name), Shape{rows(), a.heads * a.v_dim});
  tape_.add(fmt::format("{}.core", name),
            PagedAttention{.rows = rows(),
                           .sequences = paged_->sequences,
                           .heads = a.heads,
                           .kv_heads = a.kv_heads,
                           .qk_dim = a.qk_dim,
                           .v_dim = a.v_dim,
                           .page = paged_->page,
                           .max_pages = paged_->max_pages,
                           .window = a.window.value_or(0),
                           .chunked = a.chunked,
                           .scale = a.scale,
                           .cap = a.cap.value_or(0),
                           .dtype = sizes_.dtype,
                           .stored = sizes_.dtype},
            {reads(p.q), reads(p.k), reads(p.v), reads(paged_->table), reads(paged_->starts), reads(paged_->lengths),
             writes(heads_view(o, 1, rows(), a.heads, a.v_dim, a.v_dim, 0))});
  return o;
}

}  // namespace orrery
