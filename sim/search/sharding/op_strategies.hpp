// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "sim/search/sharding/logical_mesh.hpp"
#include "sim/search/sharding/program.hpp"

namespace orrery {

/// Which axes cut the loops of a product C[b,m,n] = A[b,m,k]·B[b,k,n]; each axis one loop at most. A cut k leaves parts
/// of a sum, which an all-reduce completes. Backward the gradient of A is a sum over the ranks of n, and that of a
/// matrix of weights over those of m.
struct ProductAxes {
  MeshAxes batch = kWhole, m = kWhole, n = kWhole, k = kWhole;

  ShardingSpec left() const { return {{batch, m, k}}; }
  ShardingSpec right() const { return {{batch, k, n}}; }
  ShardingSpec output() const { return {{batch, m, n}}; }
  /// "S0S1 = S0R x RS1"; with the batch in front where it is cut.
  std::string text() const;
  bool operator==(const ProductAxes&) const = default;
};

/// The ways of Colossal-Auto (arXiv 2302.02599) to multiply with weights on a mesh of two axes: 14. Left out are the
/// two that cut the rows over one axis and do nothing with the other.
std::vector<ProductAxes> linear_strategies();

/// Products of two activations: one or both axes over the batch, or one over it and the other over rows, columns or the
/// sum: 9.
std::vector<ProductAxes> batched_strategies();

/// Ops that follow their input: element by element any spec is one of theirs; a norm wants whole rows, a transpose
/// exchanges the last two dimensions.
enum class FollowerKind : std::uint8_t { Elementwise, Norm, Transpose };
/// The spec of the result; nothing where the op cannot be done on such an input.
std::optional<ShardingSpec> follow(FollowerKind kind, const ShardingSpec& input);

struct ProductSizes {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  double element_bytes = 2;
  bool has_weights = true;  // B is a parameter
};

/// What a product and a collective cost.
struct CostForm {
  std::function<double(const ProductSizes& local)> product;
  std::function<double(CollectiveKind kind, MeshAxes axes, double bytes)> collective;  // of a rank, before it
};

/// Multiply-adds, and the published forms of collectives; over both axes one after another, axis 1 first.
CostForm published_form(const MeshSizes& mesh, const AlphaBeta& first, const AlphaBeta& second);

/// Time and memory of a product in each of these ways: weights, their gradients, and `state_bytes` per element of a
/// weight more; both operands stay for the backward pass. Ways that do not divide the sizes are left out of `open`.
struct ProductChoices {
  std::vector<ProductAxes> open;
  std::vector<NodeChoice> choices;  // of the same
};
ProductChoices product_choices(const std::vector<ProductAxes>& ways, const ProductSizes& sizes, const MeshSizes& mesh,
                               const CostForm& form, double state_bytes);

}  // namespace orrery
