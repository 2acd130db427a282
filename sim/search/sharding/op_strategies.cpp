// SPDX-License-Identifier: Apache-2.0
#include "sim/search/sharding/op_strategies.hpp"

#include <fmt/format.h>

#include <utility>

#include "sim/plan/kinds/gemm.hpp"

namespace orrery {
namespace {

std::string joined_text(const ShardingSpec& spec, bool has_batch) {
  std::string out;
  for (std::size_t d = has_batch ? 0 : 1; d < spec.dims.size(); ++d) out += text_of(spec.dims[d]);
  return out;
}

ProductSizes local_sizes(const ProductAxes& a, ProductSizes s, const MeshSizes& mesh) {
  s.batch /= mesh.ranks(a.batch);
  s.m /= mesh.ranks(a.m), s.n /= mesh.ranks(a.n), s.k /= mesh.ranks(a.k);
  return s;
}

bool divides(const ProductAxes& a, const ProductSizes& s, const MeshSizes& mesh) {
  return s.batch % mesh.ranks(a.batch) == 0 && s.m % mesh.ranks(a.m) == 0 && s.n % mesh.ranks(a.n) == 0 &&
         s.k % mesh.ranks(a.k) == 0;
}

NodeChoice choice_of(const ProductAxes& a, const ProductSizes& whole, const MeshSizes& mesh, const CostForm& form,
                     double state_bytes) {
  const ProductSizes s = local_sizes(a, whole, mesh);
  const auto bytes = [&](std::int64_t rows, std::int64_t cols) {
    return double(s.batch * rows * cols) * s.element_bytes;
  };
  const auto sum = [&](MeshAxes over, double of) {
    return over == kWhole ? 0 : form.collective(CollectiveKind::AllReduce, over, of);
  };
  NodeChoice c;
  c.name = a.text();
  c.forward = form.product(s) + sum(a.k, bytes(s.m, s.n));
  ProductSizes left = s, right = s;
  std::swap(left.n, left.k);
  std::swap(right.m, right.k);
  c.backward = form.product(left) + form.product(right) + sum(a.n, bytes(s.m, s.k));
  c.saved_bytes = static_cast<std::int64_t>(bytes(s.m, s.k));
  if (whole.has_weights) {
    c.once = sum(static_cast<MeshAxes>(a.m | a.batch), bytes(s.k, s.n));
    c.model_bytes = static_cast<std::int64_t>(2 * bytes(s.k, s.n) + state_bytes * double(s.batch * s.k * s.n));
  } else {
    c.backward += sum(a.m, bytes(s.k, s.n));
    c.saved_bytes += static_cast<std::int64_t>(bytes(s.k, s.n));
  }
  c.output_bytes = static_cast<std::int64_t>(bytes(s.m, s.n));
  return c;
}

}  // namespace

std::string ProductAxes::text() const {
  const bool has_batch = batch != kWhole;
  return fmt::format("{} = {} x {}", joined_text(output(), has_batch), joined_text(left(), has_batch),
                     joined_text(right(), has_batch));
}

std::vector<ProductAxes> linear_strategies() {
  return {
      {.m = kS01},          {.k = kS01}, {.n = kS01}, {.n = kS1, .k = kS0}, {.n = kS0, .k = kS1}, {.k = kS0},
      {.k = kS1},           {.n = kS0},  {.n = kS1},  {.m = kS0, .n = kS1}, {.m = kS1, .n = kS0}, {.m = kS0, .k = kS1},
      {.m = kS1, .k = kS0}, {}};
}

std::vector<ProductAxes> batched_strategies() {
  std::vector<ProductAxes> out{{.batch = kS01}, {.batch = kS0}, {.batch = kS1}};
  for (MeshAxes ProductAxes::*loop : {&ProductAxes::m, &ProductAxes::n, &ProductAxes::k})
    for (const MeshAxes batch : {kS0, kS1}) {
      ProductAxes a{.batch = batch};
      a.*loop = static_cast<MeshAxes>(kS01 & ~batch);
      out.push_back(a);
    }
  return out;
}

std::optional<ShardingSpec> follow(FollowerKind kind, const ShardingSpec& input) {
  ShardingSpec out = input;
  if (kind == FollowerKind::Norm && input.dims.back() != kWhole) return std::nullopt;
  if (kind == FollowerKind::Transpose) std::swap(out.dims.back(), out.dims[out.dims.size() - 2]);
  return out;
}

CostForm published_form(const MeshSizes& mesh, const AlphaBeta& first, const AlphaBeta& second) {
  return {[](const ProductSizes& s) { return double(s.batch * s.m) * double(s.n * s.k); },
          [=](CollectiveKind kind, MeshAxes axes, double bytes) {
            double sum = 0;
            for (const MeshAxes axis : {kS1, kS0})
              if (axes & axis) sum += published_cost(kind, mesh.ranks(axis), axis == kS0 ? first : second, bytes);
            return sum;
          }};
}

ProductChoices product_choices(const std::vector<ProductAxes>& ways, const ProductSizes& sizes, const MeshSizes& mesh,
                               const CostForm& form, double state_bytes) {
  ProductChoices out;
  for (const ProductAxes& a : ways) {
    if (!divides(a, sizes, mesh)) continue;
    out.open.push_back(a);
    out.choices.push_back(choice_of(a, sizes, mesh, form, state_bytes));
  }
  return out;
}

}  // namespace orrery
