// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/strategy/tape.hpp"
#include "sim/strategy/tensor_scheme.hpp"

namespace orrery {

/// What squares and cubes have in common: matrices are cut in both dimensions, activations too, by samples and by
/// columns, and attention is local to whole sequences and heads. What lies on several ranks (norms, biases, tables of
/// positions; the papers keep some of it on one row of ranks and broadcast it) has the gradient of the rows of each,
/// summed with those of replicas.
class TensorMesh : public TensorScheme {
 public:
  LocalModel localise(const Model& model, const Roles& roles) const override;
  TensorId norm(Layers& l, std::string_view name, TensorId x, std::int64_t rows, const Norm& n) const override;

  /// What a matrix is for.
  enum class Use : std::uint8_t { In, Back, Outside, Table };
  /// Axes that split the dimensions of a matrix as it is stored, and of a bias.
  struct MatrixCut {
    std::vector<Split> dims[2], bias;
  };
  virtual MatrixCut cut(const Roles& roles, Use use, WeightLayout layout) const = 0;
  virtual std::vector<Split> axes(const Roles& roles) const = 0;
};

/// Adds to the gradient of a parameter what `product` writes to the tensor that it is given.
void add_to_gradient(Tape& tape, const std::string& name, TensorId parameter,
                     const std::function<void(TensorId)>& product);
/// The gradient of a bias.
void add_bias_gradient(Tape& tape, const std::string& name, TensorId bias, TensorId dy);

}  // namespace orrery
