// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/base/yaml.hpp"
#include "sim/model/model.hpp"

namespace orrery {

/// What a linear layer has besides its sizes.
struct LinearOptions {
  bool bias = false;
  WeightLayout layout = WeightLayout::OutIn;
  std::optional<double> deviation = {};  // of the initial weights; the set's own when absent
};

/// Adds parameters to a model in the order of registration, counting them, and hands out layers that refer to them.
/// A model of more than 2^53 parameters is refused at the place of its configuration.
class ParameterSet {
 public:
  ParameterSet(Model& model, const Node& config, double deviation)
      : model_{model}, config_{config}, deviation_{deviation} {}

  /// Parameters added from here on belong to this block; -1 is outside the blocks.
  void enter_block(std::int64_t layer) { layer_ = static_cast<int>(layer); }
  void leave_block() { layer_ = -1; }

  ParameterId add(Parameter parameter);
  /// A matrix or higher tensor that starts normal and decays.
  ParameterId matrix(std::string name, std::vector<std::int64_t> shape, std::optional<double> deviation = {});
  /// A vector that does not decay.
  ParameterId vector(std::string name, std::int64_t size, Init init);

  Linear linear(const std::string& prefix, std::int64_t in, std::int64_t out, const LinearOptions& options = {});
  /// The projection of patches: a convolution weight [out, channels, patch, patch] seen as a linear layer.
  Linear patches(const std::string& prefix, std::int64_t channels, std::int64_t patch, std::int64_t out);
  Norm layer_norm(const std::string& prefix, std::int64_t dim, double epsilon);
  Norm rms_norm(const std::string& prefix, std::int64_t dim, double epsilon, NormKind kind = NormKind::Rms);
  TokenEmbedding embedding(const std::string& prefix, std::int64_t vocab, std::int64_t dim,
                           std::optional<double> deviation = {});

 private:
  Model& model_;
  const Node& config_;
  double deviation_;
  int layer_ = -1;
  std::int64_t total_ = 0;
};

}  // namespace orrery
