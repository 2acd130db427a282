// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/tiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "sim/base/option_error.hpp"

namespace orrery {

ProductTile product_tile(const Gemm& g, TiledMatrix matrix, std::int64_t first, std::int64_t count) {
  ProductTile out{.work = g};
  if (matrix == TiledMatrix::Gradient) {
    out.work.m = count;
    out.a = g.transpose_a ? 1 : 0;
    out.c = 0;
    return out;
  }
  out.b = 0;
  if (g.transpose_b) {
    out.work.n = count;
    out.bias = 0;
    out.c = 1;
    return out;
  }
  out.work.k = count;
  out.a = g.transpose_a ? 0 : 1;
  if (first > 0) {
    out.work.accumulate = true;
    out.work.bias = false;
    out.bias = ProductTile::kNone;
  }
  return out;
}

namespace {

/// How the passes use weights and their gradients.
struct MatrixUses {
  bool products_only = true;  // the weight is read by products alone, as their B
  bool in_bucket = false;     // some op reads a part of it, or ranks gather it
  std::int64_t writers = 0;   // of the gradient
  bool one_product = true;    // products alone write it, as their C
};

bool can_be_cut(const Gemm& g) { return g.batch == 1 && g.narrow == Narrow::None && g.weights == Quantised::None; }

class UsesOf {
 public:
  UsesOf(const Plan& plan, const Updates& updates) : plan_{plan}, uses_(updates.all.size()) {
    for (std::uint32_t i = 0; i < updates.all.size(); ++i) {
      weights_[plan.owner(updates.all[i].weight).value] = i;
      gradients_[plan.owner(updates.all[i].gradient).value] = i;
    }
  }

  void note(const Op& op) {
    const auto* g = std::get_if<Gemm>(&plan_.work(op));
    const auto operands = plan_.operands_of(op);
    const bool flat = std::all_of(operands.begin(), operands.end(),
                                  [&](const Operand& o) { return plan_.shape(o.tensor()).rank <= 2; });
    const bool is_shared = std::holds_alternative<Collective>(plan_.work(op));
    const bool legal = g != nullptr && can_be_cut(*g) && flat;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const TensorId t = operands[k].tensor(), owner = plan_.owner(t);
      if (const auto it = weights_.find(owner.value); it != weights_.end()) {
        MatrixUses& u = uses_[it->second];
        u.in_bucket = u.in_bucket || is_shared || t != owner;
        u.products_only = u.products_only && legal && k == 1;
      }
      if (const auto it = gradients_.find(owner.value); it != gradients_.end()) {
        MatrixUses& u = uses_[it->second];
        ++u.writers;
        u.one_product = u.one_product && legal && k + 1 == operands.size() && t == owner;
      }
    }
  }

  const MatrixUses& operator[](std::size_t i) const { return uses_[i]; }

 private:
  const Plan& plan_;
  std::vector<MatrixUses> uses_;
  std::unordered_map<std::uint32_t, std::uint32_t> weights_, gradients_;  // by owner
};

}  // namespace

std::vector<Tiling> tile_weights(const Plan& plan, ClassId c, const Updates& updates, Bytes tile) {
  std::vector<Tiling> out(updates.all.size());
  if (tile <= Bytes{0}) return out;
  UsesOf uses{plan, updates};
  const RankClass& rank_class = plan.classes[c.index()];
  for (std::uint32_t i = 0; i < rank_class.num_ops; ++i)
    if (!updates.belongs[i]) uses.note(plan.ops[rank_class.first_op + i]);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Update& u = updates.all[i];
    const Bytes bytes = bytes_of(plan, u.weight);
    if (bytes <= tile) continue;
    if (uses[i].in_bucket)
      throw OptionError{
          {"tile"},
          fmt::format("'{}' lies in a bucket that ranks share, of which no tiles can be cut", plan.name_of(u.weight)),
          "use one rank, or leave out `tile`"};
    const Shape& shape = plan.shape(u.weight);
    if (shape.rank != 2 || !uses[i].products_only) continue;
    const Bytes row = bytes / double(shape[0]);
    out[i].rows = std::max<std::int64_t>(1, static_cast<std::int64_t>(tile / row));
    out[i].gradient = u.starts_fresh && uses[i].writers == 1 && uses[i].one_product;
  }
  return out;
}

TensorId slice(PlanBuilder& builder, TensorId t, int dim, std::int64_t first, std::int64_t count) {
  const Plan& plan = builder.plan();
  const Tensor& tensor = plan.tensors[t.index()];
  Layout layout = plan.layouts[tensor.layout.index()];
  const auto d = static_cast<std::size_t>(dim);
  layout.offset += first * layout.strides[d];
  layout.shape.sizes[d] = count;
  const std::string name{plan.names[tensor.name]};
  return builder.view(t, name, layout);
}

}  // namespace orrery
