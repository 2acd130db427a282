// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan/kinds/gemm.hpp"
#include "sim/strategy/offload/updates.hpp"

namespace orrery {

/// Which matrix of a product lies in tiles: the weights that it reads (B), or the gradient of weights that it writes
/// (C).
enum class TiledMatrix : std::uint8_t { Weights, Gradient };

/// A product for some rows of one of its matrices, and what its other operands take part with: the dimension of which
/// they take the same part, all of it, or nothing.
struct ProductTile {
  static constexpr int kWhole = -1, kNone = -2;
  Gemm work;
  int a = kWhole, b = kWhole, bias = kWhole, c = kWhole;
};

/// Rows [first, first + count) of the matrix as it is stored. Weights [out, in] give columns of C = A·Bᵀ; weights
/// [in, out] give parts of a sum, which tiles after the first add to C.
ProductTile product_tile(const Gemm& g, TiledMatrix matrix, std::int64_t first, std::int64_t count);

/// How a weight is cut: rows of a tile, 0 where it stays whole; whether its gradient comes about in the same tiles.
struct Tiling {
  std::int64_t rows = 0;
  bool gradient = false;
};

/// Per update of a class: weights of more than `tile` bytes that nothing but products reads are cut into tiles of at
/// most that, or of one row; their gradients where one product writes them whole. Throws UserError where such weights
/// lie in buckets of replicas.
std::vector<Tiling> tile_weights(const Plan& plan, ClassId c, const Updates& updates, Bytes tile);

/// Rows [first, first + count) of dimension `dim` of a tensor of a plan.
TensorId slice(PlanBuilder& builder, TensorId t, int dim, std::int64_t first, std::int64_t count);

}  // namespace orrery
