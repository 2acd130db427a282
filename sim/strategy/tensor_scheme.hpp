// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sim/plan/builder.hpp"
#include "sim/strategy/distribution.hpp"

namespace orrery {

class Layers;

/// A projection of what enters, under the name that `linear` is asked for it.
struct Reader {
  std::string name;
  const Linear* weights = nullptr;
};

/// How ranks compute a layer together: where matrices and activations lie, and what crosses ranks where. Between blocks
/// activations lie in one way, between a projection into a block's inside and the one back maybe in another.
///   tp               matrices in stripes (Megatron-LM), on one rank too  tensor_parallel.cpp
///   row col [depth]  matrices in squares (Optimus; Tesseract)            tensor_2d.cpp
///   x y z            matrices in a cube                                  tensor_3d.cpp
/// A scheme has no state: what it needs stands in Roles.
class TensorScheme {
 public:
  virtual ~TensorScheme() = default;

  /// The network that one rank computes. Throws UserError with the legal values where sizes do not divide.
  virtual LocalModel localise(const Model& model, const Roles& roles) const = 0;
  /// The axis over which columns of an activation between blocks are split; none: each rank has them all.
  virtual Split columns(const Roles& roles) const;
  /// The axis over which classes are split.
  virtual Split classes(const Roles& roles) const = 0;

  /// From between blocks to the inside, and back; only stripes do anything here. `readers`: all that reads what enters,
  /// where that is known.
  virtual TensorId enter(Layers& l, std::string_view name, TensorId x, std::span<const Reader> readers) const;
  virtual TensorId leave(Layers& l, std::string_view name, TensorId partial) const;
  /// A projection of what has entered to the inside: to heads, to the inner width.
  virtual TensorId linear(Layers& l, std::string_view name, TensorId x, std::int64_t rows, const Linear& w) const = 0;
  /// From the inside back to between blocks.
  virtual TensorId project_back(Layers& l, std::string_view name, TensorId x, const Linear& w) const = 0;
  /// From between blocks to between blocks.
  virtual TensorId project_outside(Layers& l, std::string_view name, TensorId x, const Linear& w) const = 0;
  /// Over the columns of an activation between blocks.
  virtual TensorId norm(Layers& l, std::string_view name, TensorId x, std::int64_t rows, const Norm& n) const = 0;
  /// Rows of a table of tokens.
  virtual TensorId embed(Layers& l, std::string_view name, TensorId table, TensorId index) const = 0;
  /// Logits, for the rows that targets are given for (Slices::of_logits).
  virtual TensorId logits(Layers& l, std::string_view name, TensorId x, const Linear& w) const = 0;
};

/// Gathers rows, in the backward pass on a stream of its own behind the op that is computed last.
void gather_rows(PlanBuilder& b, std::string_view name, const Collective& gather, TensorId from, TensorId to);

/// The scheme that the axes of a mesh ask for, and that of feed-forward layers.
const TensorScheme& scheme_of(const Roles& roles);
const TensorScheme& feed_forward_scheme_of(const Roles& roles);

/// Each rank computes alone: with samples of its own, or a sub-layer of its own.
const TensorScheme& alone();
const TensorScheme& tensor_1d();
const TensorScheme& tensor_2d();
const TensorScheme& tensor_3d();

}  // namespace orrery
